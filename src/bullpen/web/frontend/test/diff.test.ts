import assert from 'node:assert/strict'
import { test } from 'node:test'
import { compare, readDiff } from '../src/model/diff.ts'
import { readEdits, readPatch } from '../src/model/request.ts'

const PATCH = `diff --git a/cart.py b/cart.py
index 1..2 100644
--- a/cart.py
+++ b/cart.py
@@ -1,3 +1,3 @@ def price
 a
-b
+-- c
 d
\\ No newline at end of file
diff --git a/gone b/gone
deleted file mode 100644
--- a/gone
+++ /dev/null
@@ -1 +0,0 @@
-x
`

test('what git writes is read file by file', () => {
  const files = readDiff(PATCH)
  assert.deepEqual(files.map(file => [file.name, file.added, file.deleted]), [['cart.py', 1, 1], ['gone', 0, 1]])
  assert.deepEqual(files[0]!.lines.map(line => `${line.kind} ${line.old ?? ''} ${line.new ?? ''} ${line.text}`), [
    'hunk   def price', 'same 1 1 a', 'del 2  b', 'add  2 -- c', 'same 3 3 d', 'note   No newline at end of file',
  ])
})

test('a line of a file that looks like the head of another file stays a line', () => {
  const files = readDiff('diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1,2 @@\n a\n+++ b/evil\n')
  assert.equal(files.length, 1)
  assert.equal(files[0]!.name, 'x')
  assert.equal(files[0]!.lines.at(-1)!.text, '++ b/evil')
})

test('an edit is shown by its lines, and every other field of it', () => {
  const shown = readEdits('Edit', { file_path: '/a', old_string: 'one\ntwo\nthree', new_string: 'one\n2\nthree', replace_all: true })
  assert.deepEqual(shown!.edits[0]!.lines.map(line => line.kind + line.text), ['sameone', 'deltwo', 'add2', 'samethree'])
  assert.deepEqual(shown!.rest, [['replace_all', 'true']])
})

test('what is no edit of a known form is left to its text', () => {
  assert.equal(readEdits('Edit', { file_path: '/a', old_string: 1, new_string: '' }), null)
  assert.equal(readEdits('MultiEdit', { file_path: '/a', edits: [{ old_string: 'a', new_string: 'b', odd: 1 }] }), null)
  assert.equal(readEdits('Bash', { command: 'ls' }), null)
  assert.equal(readEdits('Write', null), null)
})

test('every line of both texts is in the difference, unless it is common', () => {
  const lines = compare('a\nb\nc\nd\n', 'a\nx\nc\ny\nd\n')
  assert.deepEqual(lines.map(line => line.kind[0] + line.text), ['sa', 'db', 'ax', 'sc', 'ay', 'sd'])
  assert.deepEqual(compare('', 'new\n').map(line => line.kind), ['add'])
  assert.deepEqual(compare('old', '').map(line => line.kind), ['del'])
})

test('a line break that is taken away or added at the end is a change that is seen', () => {
  const kinds = (before: string, after: string) => compare(before, after).map(line => `${line.kind} ${line.text}`)
  assert.deepEqual(kinds('x = 1  # note\n', 'x = 1  # note'), ['same x = 1  # note', 'del (the line break after it: what follows is joined to this line)'])
  assert.deepEqual(kinds('a', 'a\n'), ['same a', 'add (a line break after it)'])
  assert.deepEqual(kinds('a\n', ''), ['del a'])
  assert.deepEqual(kinds('a\n', 'b\n'), ['del a', 'add b'])
})

test('an edit of Gemini CLI and a patch of Codex are diffs, too', () => {
  assert.deepEqual(readEdits('replace', { file_path: '/a', old_string: 'a', new_string: 'b', instruction: 'x' })!.rest, [['instruction', 'x']])
  const text = '*** Begin Patch\n*** Update File: a.py\n*** Move to: b.py\n@@ def f():\n same\n-old\n+new\n*** Add File: c\n+one\n*** Delete File: d\n*** End Patch\n'
  const shown = readPatch('apply_patch', { input: text })!
  assert.deepEqual(shown.edits.map(one => [one.path, one.isNew, one.lines.map(line => `${line.kind} ${line.text}`)]), [
    ['a.py', false, ['note Move to: b.py', 'hunk def f():', 'same same', 'del old', 'add new']], ['c', true, ['add one']], ['d', false, ['note deleted']],
  ])
  for (const odd of ['', 'ls', '*** Update File: a\nodd']) assert.equal(readPatch('apply_patch', { input: odd }), null)
  assert.equal(readPatch('exec_command', { input: text }), null)
})
