"use strict";
// The report's read-outs: a cursor that all charts share, and legends that hide series.
// Numbers are written as in numerals.py.
(() => {
  const SIZE = 1000;

  const tenths = (n) => Math.floor(n * 10 + 0.5) / 10;
  const count = (n) => Math.floor(n + 0.5).toString().replace(/\B(?=(\d{3})+$)/g, ",");
  const pair = (n, small, large, factor) => {
    const rest = n % factor;
    return `${Math.floor(n / factor)} ${large}` + (rest ? ` ${rest} ${small}` : "");
  };
  const duration = (s) => {
    if (s < 9.95) return tenths(s) + " s";
    const whole = Math.floor(s + 0.5);
    if (whole < 60) return `${whole} s`;
    if (whole < 3600) return pair(whole, "s", "min", 60);
    const minutes = Math.floor(s / 60 + 0.5);
    if (minutes < 1440) return pair(minutes, "min", "h", 60);
    return pair(Math.floor(s / 3600 + 0.5), "h", "d", 24);
  };
  const TEXT = {
    share: (v) => tenths(v * 100).toFixed(1) + "%",
    count,
    seconds: duration,
    rate: (v) => count(v) + "/s",
  };

  const nearest = (x, at) => {
    let low = 0;
    let high = x.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (x[middle] < at) low = middle;
      else high = middle;
    }
    return at - x[low] < x[high] - at ? low : high;
  };

  const charts = [...document.querySelectorAll(".chart")].flatMap((figure) => {
    const data = figure.querySelector("script");
    if (!data) return [];
    const buttons = [...figure.querySelectorAll(".legend button")];
    return [{
      ...JSON.parse(data.textContent),
      field: figure.querySelector(".field"),
      cursor: figure.querySelector(".cursor"),
      when: figure.querySelector(".when"),
      buttons,
      values: buttons.map((button) => button.querySelector("b")),
      last: buttons.map((button) => button.querySelector("b").textContent),
      paths: [...figure.querySelectorAll("path.line, path.area")],
      wash: figure.querySelector("path.wash"),
      restWhen: figure.querySelector(".when").textContent,
    }];
  });

  const pointAt = (at) => {
    for (const chart of charts) {
      chart.cursor.classList.add("live");
      chart.cursor.style.left = `${(at / chart.span) * 100}%`;
      chart.when.classList.add("live");
      chart.when.textContent = `at ${duration(at)}`;
      if (!chart.x.length) continue;
      const row = nearest(chart.x, at);
      chart.values.forEach((cell, i) => {
        const value = chart.series[i][row];
        cell.textContent = value === null ? "–" : TEXT[chart.unit](value);
      });
    }
  };

  const rest = () => {
    for (const chart of charts) {
      chart.cursor.classList.remove("live");
      chart.when.classList.remove("live");
      chart.when.textContent = chart.restWhen;
      chart.values.forEach((cell, i) => (cell.textContent = chart.last[i]));
    }
  };

  const shown = (button) => button.getAttribute("aria-pressed") === "true";

  // Hidden areas take no room: the ones above come down.
  const restack = (chart) => {
    let floor = chart.x.map(() => 0);
    chart.series.forEach((values, i) => {
      const visible = shown(chart.buttons[i]);
      const ceiling = floor.map((y, row) => y + (visible ? values[row] / chart.top : 0));
      const point = (y) => (_, row) =>
        `${((chart.x[row] / chart.span) * SIZE).toFixed(1)} ${((1 - y[row]) * SIZE).toFixed(1)}`;
      const up = chart.x.map(point(ceiling));
      const down = chart.x.map(point(floor)).reverse();
      chart.paths[i].setAttribute("d", visible ? `M${up.concat(down).join("L")}Z` : "");
      floor = ceiling;
    });
  };

  const toggle = (chart, i) => {
    chart.buttons[i].setAttribute("aria-pressed", String(!shown(chart.buttons[i])));
    if (chart.kind === "areas") restack(chart);
    else chart.paths[i].style.display = shown(chart.buttons[i]) ? "" : "none";
    if (chart.wash) chart.wash.style.display = chart.paths[i].style.display;
  };

  for (const chart of charts) {
    const follow = (event) => {
      const box = chart.field.getBoundingClientRect();
      const share = Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1);
      pointAt(share * chart.span);
    };
    chart.field.addEventListener("pointermove", follow);
    chart.field.addEventListener("pointerdown", follow);
    chart.field.addEventListener("pointerleave", rest);
    chart.field.addEventListener("blur", rest);
    let row = chart.x.length - 1;
    chart.field.addEventListener("keydown", (event) => {
      const move = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
      if (!move || !chart.x.length) return;
      event.preventDefault();
      row = Math.min(Math.max(row + move, 0), chart.x.length - 1);
      pointAt(chart.x[row]);
    });
    chart.buttons.forEach((button, i) => button.addEventListener("click", () => toggle(chart, i)));
  }
})();
