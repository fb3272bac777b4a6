// One entry of a landing queue.
import { useEffect, useState } from 'preact/hooks'
import { landingWords } from '../model/landing.ts'
import type { Landing } from '../model/nouns.ts'
import type { Look } from '../model/states.ts'
import { path } from '../live/http.ts'
import { useFetched } from './fetched.tsx'
import { StateIcon } from './icons.tsx'
import { Ago, Literal } from './text.tsx'

const LOOK_MS = 2_000

const LOOKS: Record<Landing['status']['state'], Look> = {
  waiting: 'wait', building: 'work', verifying: 'work', moving: 'work', came_back: 'bad', landed: 'done', refused: 'bad', cancelled: 'idle',
}

export function LandingRow({ landing }: { landing: Landing }) {
  const status = landing.status
  const output = status.state === 'came_back' ? status.output : ''
  const look = LOOKS[status.state]
  return (
    <>
      <a class="row" href={`/changes${path(landing.name)}`} data-item={`landing:${landing.id}`}>
        <span class={`state ${look}`}><StateIcon look={look} /></span>
        <span class="who"><b>{landing.name}</b> <span class="what"><Literal text={landingWords(landing)} />{status.state === 'refused' && status.hint && <> · <Literal text={status.hint} /></>}</span></span>
        <span class="fig"><span>→ <Literal text={landing.target} /></span><span><Ago at={'at' in status ? status.at : landing.created} /></span></span>
      </a>
      {output && <Output text={output} />}
      {status.state === 'verifying' && <Running id={landing.id} />}
    </>
  )
}

/** What the checks write, while they run. */
function Running({ id }: { id: string }) {
  const [isOpen, setOpen] = useState(false)
  const [round, setRound] = useState(0)
  const { value } = useFetched<{ output: string }>(isOpen ? `/landings${path(id)}/output` : null, {}, round)
  useEffect(() => {
    if (!isOpen) return
    const timer = setInterval(() => { if (document.visibilityState === 'visible') setRound(n => n + 1) }, LOOK_MS)
    return () => clearInterval(timer)
  }, [isOpen])
  return (
    <details class="tool" onToggle={event => setOpen(event.currentTarget.open)}>
      <summary><b>Output</b><span class="dim">of the checks, as they run</span></summary>
      {value && <Output text={value.output || '(nothing yet)'} />}
    </details>
  )
}

function Output({ text }: { text: string }) {
  return <div class="pad"><pre class="cmd" tabIndex={0} role="group" aria-label="output of the checks"><Literal text={text} /></pre></div>
}
