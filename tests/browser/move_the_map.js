// Zoom the map in and out around a moving pointer for a second and a half.  Return the sorted
// milliseconds between animation frames.
async () => {
  const canvas = document.querySelector('.map canvas')
  const box = canvas.getBoundingClientRect()
  const at = { clientX: box.x + box.width / 2, clientY: box.y + 80, bubbles: true, cancelable: true }
  const shown = []
  let before = performance.now()
  const end = before + 1500
  for (let n = 0; performance.now() < end; n += 1) {
    const deltaY = n % 40 < 20 ? -40 : 40
    canvas.dispatchEvent(new WheelEvent('wheel', { ...at, ctrlKey: true, deltaY }))
    canvas.dispatchEvent(new MouseEvent('mousemove', { ...at, clientX: at.clientX + (n % 50) }))
    const now = await new Promise(requestAnimationFrame)
    shown.push(now - before)
    before = now
  }
  return shown.slice(2).sort((a, b) => a - b)
}
