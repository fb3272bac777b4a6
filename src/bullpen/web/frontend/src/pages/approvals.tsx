// Everything that waits for a person, across all agents; and what was decided lately.
import { useEffect } from 'preact/hooks'
import type { Approval, Message } from '../model/nouns.ts'
import { clock } from '../model/text.ts'
import { path } from '../live/http.ts'
import { useWorld } from '../live/store.ts'
import { chosen } from '../live/keys.ts'
import { NeedsYou } from '../parts/list.tsx'
import { StateIcon } from '../parts/icons.tsx'
import { useCalm, useFetched } from '../parts/fetched.tsx'
import { Empty, Literal, Problem } from '../parts/text.tsx'

export function Approvals({ id }: { id: number | null }) {
  const waiting = useWorld(world => world.approvals)
  const isLoaded = useWorld(world => world.isLoaded)
  const all = useFetched<{ approvals: Approval[] }>('/approvals', { all: 1 }, waiting)
  const decided = (all.value?.approvals ?? []).filter(one => one.state.status !== 'waiting').reverse()
  useEffect(() => {
    if (id === null || !isLoaded) return
    chosen.set(`approval:${id}`)
    document.querySelector(`[data-item="approval:${id}"]`)?.scrollIntoView({ block: 'center' })
  }, [id, isLoaded])
  const isGone = id !== null && isLoaded && !waiting.some(one => one.id === id)
  const gone = isGone ? decided.find(one => one.id === id) : undefined
  return (
    <div class="wide stack">
      <h1 class="unseen">Approvals</h1>
      {isGone && <p class="card pad"><b>#{id}</b> does not wait any more{gone && <>: <Literal text={outcome(gone)} /></>}.</p>}
      <NeedsYou />
      <ToYou />
      <section class="card" aria-label="Decided lately">
        <header><h2>Decided lately</h2></header>
        {all.error !== null && <div class="pad"><Problem error={all.error} /></div>}
        {all.value && decided.length === 0 && <Empty title="Nothing yet" />}
        {decided.slice(0, 30).map(one => (
          <a key={one.id} class="row" href={`/agents${path(one.agent)}`}>
            <span class={`state ${lookOf(one)}`}><StateIcon look={lookOf(one)} /></span>
            <span class="who"><b>{one.agent}</b> <span class="what"><Literal text={outcome(one)} /> · <Literal text={one.tool} /> <code><Literal text={one.text.split('\n')[0] ?? ''} /></code></span></span>
            <span class="fig">{'at' in one.state ? clock(one.state.at) : ''}</span>
          </a>
        ))}
      </section>
    </div>
  )
}

/** What agents wrote to the person. Shown here, it is read. */
function ToYou() {
  const calm = useCalm(useWorld(world => world.touched['root']), 300)
  const { value } = useFetched<{ messages: Message[] }>('/agents/root/messages', { limit: 30 }, calm)
  if (!value?.messages.length) return null
  return (
    <section class="card" aria-label="Written to you">
      <header><h2>Written to you</h2></header>
      {[...value.messages].reverse().map(message => (
        <div key={message.id} class="message">
          <span class="small"><a href={`/agents${path(message.sender)}/messages`}><b><Literal text={message.sender} /></b></a></span>
          <span class="small dim">{clock(message.created)}</span>
          <div class="said"><Literal text={message.text} /></div>
        </div>
      ))}
    </section>
  )
}

function lookOf(approval: Approval): 'done' | 'bad' | 'idle' {
  if (approval.state.status !== 'answered') return 'idle'
  return approval.state.decision === 'allow' ? 'done' : 'bad'
}

export function outcome(approval: Approval): string {
  const state = approval.state as Approval['state'] & { name?: string }
  if (state.status === 'closed') return state.why
  if (state.status === 'waiting') return 'waits'
  const who = state.name || (state.by === 'owner' ? '' : state.by === 'reviewer' ? 'the reviewer' : state.by)
  const what = approval.questions.length ? 'answered' : state.decision === 'allow' ? 'allowed' : 'denied'
  return `${what}${who ? ` by ${who}` : ''}${state.reason ? `: ${state.reason}` : ''}`
}
