// The copy button of the site copies the commands of a console block, without prompts and output.
function commandsIn(text) {
  const prompt = text.startsWith("# ") ? "# " : "$ ";
  const found = [];
  let end = "";
  let goesOn = false;
  for (const line of text.split("\n")) {
    if (end || goesOn) {
      found.push(line);
    } else if (line.startsWith(prompt)) {
      found.push(line.slice(prompt.length));
    } else {
      continue;
    }
    if (end) {
      end = line === end ? "" : end;
      continue;
    }
    end = (/(?<!<)<<(?!<)-?\s*['"]?(\w+)/.exec(line) || ["", ""])[1];
    goesOn = line.endsWith("\\");
  }
  return found.join("\n");
}

for (const block of document.querySelectorAll("code:has(.gp)")) {
  block.dataset.copy = commandsIn(block.innerText);
}
