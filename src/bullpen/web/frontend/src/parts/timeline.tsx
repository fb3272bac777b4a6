// Who did what when: a line for each agent.
import { useState } from 'preact/hooks'
import type { Timeline as Changes } from '../model/nouns.ts'
import { hours, secondsOf, stretches } from '../model/timeline.ts'
import { clock, span } from '../model/text.ts'
import { path } from '../live/http.ts'
import { useWorld } from '../live/store.ts'
import { useCalm, useFetched } from './fetched.tsx'
import { Empty, Problem } from './text.tsx'

const LENGTHS: [string, number][] = [['1 h', 3_600], ['8 h', 8 * 3_600], ['24 h', 86_400]]

export function Timeline() {
  const agents = useWorld(world => world.agents)
  const calm = useCalm(useWorld(world => world.lastEvent), 3_000)
  const [length, setLength] = useState(3_600)
  const { value, error } = useFetched<Changes>('/timeline', { since_seconds: length }, calm)
  const to = Date.now() / 1000
  const from = to - length
  const tracks = value ? stretches(value, Object.values(agents), from, to) : []
  const percent = (seconds: number) => `${Math.min(100, Math.max(0, (seconds / length) * 100))}%`
  const offset = -60 * new Date().getTimezoneOffset()
  return (
    <section class="card" aria-label="Who did what when">
      <header>
        <h2>Who did what when</h2>
        <div class="segments right" role="group" aria-label="How far back">{LENGTHS.map(([title, seconds]) => <button key={title} aria-pressed={length === seconds} onClick={() => setLength(seconds)}>{title}</button>)}</div>
      </header>
      {error !== null && <div class="pad"><Problem error={error} /></div>}
      {value && tracks.length === 0 && <Empty title="Nobody did anything" />}
      {tracks.length > 0 && (
        <div class="tracks pad">
          {tracks.map(track => (
            <>
              <a class="small" title={track.name} href={`/agents${path(track.name)}/history`}>{track.name}</a>
              <div class="track-line" role="img" aria-label={`worked ${span(secondsOf(track, 'work'))}, blocked ${span(secondsOf(track, 'need'))}, idle ${span(secondsOf(track, 'idle'))}`}>
                {track.stretches.map((one, at) => (
                  <i key={at} class={`bg-${one.look}`} title={`${one.word} ${clock(one.from)} to ${clock(one.to)}: ${span(one.to - one.from)}`} style={{ left: percent(one.from - from), width: percent(one.to - one.from) }} />
                ))}
              </div>
            </>
          ))}
          <span />
          <div class="track-hours dim" aria-hidden="true">{hours(from, to, offset).map(at => <span key={at} style={{ left: percent(at - from) }}>{clock(at).slice(-5)}</span>)}</div>
        </div>
      )}
      {value && value.since > from + 60 && <p class="pad dim small">So much happened that this begins at {clock(value.since)}.</p>}
      {tracks.length > 0 && <p class="legend pad dim small"><span><i class="bg-work" />works</span><span><i class="bg-need" />blocked</span><span><i class="bg-wait" />waits</span><span><i class="bg-idle" />idle</span><span><i class="bg-bad" />failed</span></p>}
    </section>
  )
}
