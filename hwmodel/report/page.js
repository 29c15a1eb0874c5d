"use strict";
(function () {
  const tip = document.getElementById("tip"), said = document.getElementById("said");
  let kept = false;  // a mark that the keyboard chose keeps its words while the page scrolls to it
  function hide() { tip.hidden = true; kept = false; }
  function showAt(text, x, y) {
    tip.textContent = text;
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = Math.max(6, Math.min(innerWidth - box.width - 6, x + 14)) + "px";
    tip.style.top = (y + 18 + box.height > innerHeight ? y - box.height - 10 : y + 18) + "px";
  }
  const markOf = (target) => target.closest ? target.closest("[data-tip]") : null;
  document.addEventListener("pointermove", (event) => {
    const mark = markOf(event.target);
    if (mark) showAt(mark.dataset.tip, event.clientX, event.clientY); else if (!kept) hide();
  });
  document.addEventListener("pointerdown", (event) => {
    const mark = markOf(event.target);
    if (mark) showAt(mark.dataset.tip, event.clientX, event.clientY);
  });
  document.addEventListener("scroll", () => { if (!kept) hide(); }, { passive: true, capture: true });

  // charts: arrow keys walk the marks, + and - zoom
  for (const chart of document.querySelectorAll("svg.chart")) {
    let at = -1;
    const marks = () => Array.from(chart.querySelectorAll(".mark")).sort((a, b) => parseFloat(a.getAttribute("x")) - parseFloat(b.getAttribute("x")) || 0);
    const leave = () => { for (const mark of chart.querySelectorAll(".on")) mark.classList.remove("on"); hide(); };
    const ordered = chart.classList.contains("columns");
    chart.addEventListener("blur", leave);
    chart.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (event.key === "+" || event.key === "-") { zoomOf(chart, event.key === "+" ? 2 : 0.5); event.preventDefault(); return; }
      if (event.key === "Escape") { leave(); return; }
      if (!step) return;
      event.preventDefault();
      const all = ordered ? marks() : Array.from(chart.querySelectorAll(".mark"));
      if (!all.length) return;
      leave();
      at = Math.max(0, Math.min(all.length - 1, at + step));
      const mark = all[at];
      mark.classList.add("on");
      const box = mark.getBoundingClientRect();
      const frame = chart.parentElement.getBoundingClientRect();
      if (box.left < frame.left || box.right > frame.right) chart.parentElement.scrollLeft += box.left - frame.left - frame.width / 2;
      const now = mark.getBoundingClientRect();
      showAt(mark.dataset.tip, now.left + now.width / 2, now.bottom - 10);
      kept = true;
      said.textContent = mark.dataset.tip;
    });
  }
  function zoomOf(chart, factor, to) {
    const frame = chart.closest(".zoom");
    if (!frame) return;
    const old = parseFloat(chart.dataset.zoom || "1"), middle = (frame.scrollLeft + frame.clientWidth / 2) / (frame.scrollWidth || 1);
    const now = to || Math.max(1, Math.min(64, old * factor));
    chart.dataset.zoom = now;
    chart.setAttribute("width", now * 100 + "%");
    frame.scrollLeft = middle * frame.scrollWidth - frame.clientWidth / 2;
  }
  for (const frame of document.querySelectorAll(".zoom")) {
    frame.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.shiftKey) return;
      event.preventDefault();
      zoomOf(frame.querySelector("svg.chart"), event.deltaY < 0 ? 1.25 : 0.8);
    }, { passive: false });
  }
  for (const button of document.querySelectorAll("button[data-zoom]")) {
    button.addEventListener("click", () => {
      const chart = document.getElementById(button.dataset.of).querySelector("svg.chart");
      zoomOf(chart, parseFloat(button.dataset.zoom), button.dataset.zoom === "0" ? 1 : 0);
    });
  }
  for (const button of document.querySelectorAll("button[data-order]")) {
    button.addEventListener("click", () => {
      const chart = document.getElementById(button.dataset.of).querySelector("svg.chart");
      const all = Array.from(chart.querySelectorAll(".col"));
      const by = button.dataset.order === "value" ? (a, b) => b.dataset.value - a.dataset.value || a.dataset.place - b.dataset.place
        : (a, b) => a.dataset.place - b.dataset.place;
      all.sort(by).forEach((mark, index) => mark.setAttribute("x", 100 * index / all.length + "%"));
      for (const other of button.parentElement.querySelectorAll("button[data-order]")) other.setAttribute("aria-pressed", String(other === button));
    });
  }

  // tables: a head sorts its column; rows open their explanation
  for (const table of document.querySelectorAll("table.sort")) {
    table.querySelectorAll(":scope > thead th").forEach((head, column) => {
      const button = head.querySelector("button");
      if (!button) return;
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") !== "descending";
        for (const other of table.querySelectorAll(":scope > thead th")) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const valueOf = (body) => { const cell = body.rows[0].cells[column]; return cell.dataset.value === undefined ? cell.textContent : +cell.dataset.value; };
        const bodies = Array.from(table.tBodies);
        bodies.sort((a, b) => { const x = valueOf(a), y = valueOf(b); return (x < y ? -1 : x > y ? 1 : 0) * (down ? -1 : 1); });
        for (const body of bodies) table.appendChild(body);
      });
    });
  }
  for (const button of document.querySelectorAll("button.more")) {
    button.addEventListener("click", () => {
      const open = button.getAttribute("aria-expanded") !== "true";
      button.setAttribute("aria-expanded", String(open));
      document.getElementById(button.getAttribute("aria-controls")).hidden = !open;
    });
  }
  const filter = document.getElementById("filter");
  if (filter) filter.addEventListener("input", () => {
    const wanted = filter.value.toLowerCase();
    for (const body of document.getElementById("ops-table").tBodies) body.hidden = !body.rows[0].textContent.toLowerCase().includes(wanted);
  });

  // a link to an explanation opens it
  function open() {
    const target = location.hash.length > 1 ? document.getElementById(decodeURIComponent(location.hash.slice(1))) : null;
    if (target && target.tagName === "DETAILS") { target.open = true; target.scrollIntoView(); }
  }
  addEventListener("hashchange", open);
  document.addEventListener("click", (event) => {
    const link = event.target.closest ? event.target.closest("a[href^='#why-']") : null;
    if (link && link.getAttribute("href") === location.hash) open();
  });
  open();
  document.documentElement.dataset.ready = "yes";
})();
