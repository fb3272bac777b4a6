// A tool that an agent used: an edit as a diff, all else as it was given, with what came of it.
import { memo } from 'preact/compat'
import { useMemo, useState } from 'preact/hooks'
import { givenText, type Turn } from '../model/conversation.ts'
import { readEdits, readPatch } from '../model/request.ts'
import { oneLine } from '../model/text.ts'
import { EditCounts, Edits, Lines } from '../parts/diff.tsx'
import { Literal } from '../parts/text.tsx'

const FEW_LINES = 24  // so many are read at once

interface Given { turn: Turn; base: string }

/** `base`: where the agent works; paths below it are shown without it. */
export const ToolUse = memo(function ToolUse({ turn, base }: Given) {
  const { tool, input, result } = turn
  const shown = useMemo(() => readEdits(tool, input) ?? readPatch(tool, input), [tool, input])
  const [isOpen, setOpen] = useState(() => shown !== null && shown.edits.reduce((sum, edit) => sum + edit.lines.length, 0) <= FEW_LINES)
  const only = shown?.edits.length === 1 ? shown.edits[0]! : null
  const about = only?.path ?? turn.text
  return (
    <details class="tool" open={isOpen} onToggle={event => setOpen(event.currentTarget.open)}>
      <summary><b><Literal text={tool} /></b><code><Literal text={oneLine(base && about.startsWith(`${base}/`) ? about.slice(base.length + 1) : about)} /></code>{shown && <EditCounts edits={shown.edits} />}</summary>
      {isOpen && only && <Lines lines={only.lines} />}
      {isOpen && shown && (!only || shown.rest.length > 0) && <div class="pad"><Edits shown={only ? { edits: [], rest: shown.rest } : shown} /></div>}
      {isOpen && (!shown || result !== null) && (
        <pre tabIndex={0} role="group" aria-label={shown ? 'what came of it' : 'what it did'}><Literal text={[shown ? '' : givenText(turn), result ?? ''].filter(Boolean).join('\n\n')} /></pre>
      )}
    </details>
  )
}, isSame)

function isSame({ turn: a, base }: Given, { turn: b, base: other }: Given): boolean {
  return a.key === b.key && a.input === b.input && a.text === b.text && a.result === b.result && base === other
}
