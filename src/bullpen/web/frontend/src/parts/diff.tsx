// Diffs as tables of lines; long ones in pieces, so that the page stays quick.
import { useState } from 'preact/hooks'
import { type DiffLine, type FileDiff, readDiff } from '../model/diff.ts'
import type { Edit, Shown } from '../model/request.ts'
import { Literal } from './text.tsx'

const AT_ONCE = 400
const MARK = { add: '+', del: '−', same: ' ', hunk: '', note: '' } as const

export function Lines({ lines, numbered = false }: { lines: DiffLine[]; numbered?: boolean }) {
  const [shown, show] = useState(AT_ONCE)
  return (
    <div class="diff" tabIndex={0} role="group" aria-label="changed lines">
      <table>
        <tbody>
          {lines.slice(0, shown).map((line, at) => (
            <tr key={at} class={line.kind}>
              {numbered && <td class="no">{line.old ?? ''}</td>}
              {numbered && <td class="no">{line.new ?? ''}</td>}
              <td class="mark">{MARK[line.kind]}</td>
              <td><Literal text={line.text} /></td>
            </tr>
          ))}
        </tbody>
      </table>
      {lines.length > shown && (
        <button class="btn plain" onClick={() => show(shown + 4 * AT_ONCE)}>{lines.length - shown} more lines</button>
      )}
    </div>
  )
}

export function Counts({ added, deleted }: { added: number; deleted: number }) {
  return <span class="counts"><span class="good">+{added}</span> <span class="bad">−{deleted}</span></span>
}

export function EditCounts({ edits }: { edits: Edit[] }) {
  const number = (kind: DiffLine['kind']) => edits.reduce((sum, edit) => sum + edit.lines.filter(line => line.kind === kind).length, 0)
  return <Counts added={number('add')} deleted={number('del')} />
}

/** What a tool edits, file by file, and all else that it was given. */
export function Edits({ shown }: { shown: Shown }) {
  return (
    <div class="stack">
      {shown.edits.map((edit, at) => (
        <div key={at} class="file">
          <header>
            <Literal text={edit.path} />{edit.isNew && <span class="dim nowrap">whole file</span>}
            <EditCounts edits={[edit]} />
          </header>
          <Lines lines={edit.lines} />
        </div>
      ))}
      {shown.rest.map(([name, value]) => <div key={name} class="note"><code>⟨<Literal text={name} />⟩</code> <Literal text={value} /></div>)}
    </div>
  )
}

export function File({ file, isOpen }: { file: FileDiff; isOpen: boolean }) {
  const [open, setOpen] = useState(isOpen)
  return (
    <details class="file" open={open} onToggle={event => setOpen(event.currentTarget.open)}>
      <summary><Literal text={file.name || 'changes'} /><Counts added={file.added} deleted={file.deleted} /></summary>
      {open && <Lines lines={file.lines} numbered />}
    </details>
  )
}

/** What git wrote, file by file. */
export function Patch({ text }: { text: string }) {
  const files = readDiff(text)
  const isSmall = files.reduce((sum, file) => sum + file.lines.length, 0) < 600
  return <div class="stack">{files.map((file, at) => <File key={`${at}:${file.name}`} file={file} isOpen={isSmall || at < 3} />)}</div>
}
