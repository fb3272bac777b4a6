// The state, and what it rests on.
import type { Agent, Explained } from '../model/nouns.ts'
import { exactClock } from '../model/text.ts'
import { path } from '../live/http.ts'
import { useFetched } from '../parts/fetched.tsx'
import { Ago, Chip, Literal, Problem } from '../parts/text.tsx'

export function Explain({ agent }: { agent: Agent }) {
  const { value, error } = useFetched<Explained>(`/agents${path(agent.name)}/explain`, {}, `${agent.run}${agent.since}`)
  if (error) return <Problem error={error} />
  if (!value) return <p class="dim">Asking…</p>
  return (
    <div class="stack">
      <p class="acts"><Chip state={value.state} /><span class="dim">for <Ago at={value.since} />, because of the {value.decided_by}</span></p>
      <div class="card">
        <table class="plain">
          <thead><tr><th>Source</th><th>says</th><th class="num hide-phone">at</th></tr></thead>
          <tbody>{value.evidence.map((one, at) => (
            <tr key={at}><td>{one.source === value.decided_by ? <b><Literal text={one.source} /></b> : <Literal text={one.source} />}<span class="only-phone dim small num">{exactClock(one.at)}</span></td><td><Literal text={one.says} />{one.source === value.decided_by && <span class="dim"> ← decides</span>}</td><td class="num dim hide-phone">{exactClock(one.at)}</td></tr>
          ))}</tbody>
        </table>
      </div>
      {value.messages > 0 && <p class="dim">{value.messages} messages wait: <Literal text={value.messages_wait} /></p>}
    </div>
  )
}
