// Replaces the main part of the page each time that the server sends a new one. Adds what needs a script: ages, a
// filter, columns that sort, and buttons that copy a command.
const main = document.querySelector("main");
const lost = document.querySelector(".lost");
const seen = document.querySelector(".seen");
const filter = document.createElement("input");
const order = { column: -1, sign: 1 };
const UNITS = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];

const tell = (text) => { lost.textContent = text; };
const note = () => { seen.textContent = `read only, as of ${new Date().toLocaleTimeString()}`; };

function ages() {
  for (const each of main.querySelectorAll("time[datetime]")) {
    const seconds = (Date.now() - Date.parse(each.dateTime)) / 1000;
    if (Number.isNaN(seconds)) continue;
    each.title = each.dateTime;
    const [unit, size] = UNITS.find(([, least]) => seconds >= 2 * least) ?? UNITS[3];
    each.textContent = `${Math.max(Math.floor(seconds / size), 0)}${unit}${each.closest("td") ? "" : " ago"}`;
  }
}

function narrow() {
  for (const each of main.querySelectorAll("tbody tr, .tile")) {
    each.hidden = !each.textContent.toLowerCase().includes(filter.value.toLowerCase());
  }
}

function key(row) {
  const cell = row.cells[order.column];
  return cell.querySelector("time")?.dateTime ?? cell.textContent;
}

function sort() {
  const body = main.querySelector("tbody");
  if (!body || order.column < 0) return;
  const compare = (one, other) => order.sign * key(one).localeCompare(key(other), undefined, { numeric: true });
  body.append(...[...body.rows].sort(compare));
}

function buttons() {
  for (const each of main.querySelectorAll(".copy")) {
    const button = document.createElement("button");
    button.textContent = each.dataset.label;
    button.title = `copy: ${each.dataset.command}`;
    button.onclick = async () => {
      await navigator.clipboard.writeText(each.dataset.command);
      button.textContent = "copied";
    };
    each.replaceChildren(button);
  }
  main.querySelectorAll("th").forEach((each, column) => {
    each.tabIndex = 0;
    each.onclick = () => {
      order.sign = order.column === column ? -order.sign : 1;
      order.column = column;
      sort();
    };
    each.onkeydown = (event) => { if (event.key === "Enter") each.onclick(); };
  });
}

function enhance() { ages(); narrow(); sort(); buttons(); note(); }

filter.type = "search";
filter.placeholder = "filter";
filter.setAttribute("aria-label", "show only what has this text");
filter.oninput = narrow;
seen.before(filter);
enhance();
setInterval(ages, 1000);

const source = new EventSource(document.body.dataset.live);
source.onopen = () => tell("");
source.onerror = () => tell("The connection to kubectl vmherd ui is lost: what follows may be old.");
source.addEventListener("silence", (event) => tell(`The API server: ${event.data}. What follows may be old.`));
source.addEventListener("seen", note);
source.onmessage = (event) => { main.innerHTML = event.data; tell(""); enhance(); };
