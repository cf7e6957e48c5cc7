// Moves the map for a second and a half: zooms in and out about a pointer that moves.  Returns the
// milliseconds between frames as the browser shows them, in order.
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
