"""One file per verb; each exports `command`. Loaded only when that verb is called."""
