// Replaces the main part of the page each time that the server sends a new one.
const main = document.querySelector("main");
const lost = document.querySelector(".lost");
const source = new EventSource(document.body.dataset.live);
const tell = (text) => { lost.textContent = text; };
source.onopen = () => tell("");
source.onerror = () => tell("The connection to kubectl vmherd ui is lost: what follows may be old.");
source.addEventListener("silence", (event) => tell(`The API server: ${event.data}. What follows may be old.`));
source.onmessage = (event) => { main.innerHTML = event.data; tell(""); };
