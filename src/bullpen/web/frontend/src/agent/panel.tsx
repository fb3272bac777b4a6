// One agent: who it is, what it does, and six ways to look closer.
import { useState } from 'preact/hooks'
import type { Agent } from '../model/nouns.ts'
import { isEnded } from '../model/states.ts'
import { count, money } from '../model/text.ts'
import { refresh } from '../live/connect.ts'
import { path, post, remove } from '../live/http.ts'
import { type Tab, TABS, useSearch } from '../live/route.ts'
import { useWorld } from '../live/store.ts'
import { Ask } from '../parts/ask.tsx'
import { Confirm } from '../parts/dialog.tsx'
import { Icon } from '../parts/icons.tsx'
import { Ago, Chip, Empty, Literal } from '../parts/text.tsx'
import { say, sayRefused } from '../parts/toasts.tsx'
import { Changes } from './changes.tsx'
import { Conversation } from './conversation.tsx'
import { Explain } from './explain.tsx'
import { History } from './history.tsx'
import { Messages } from './messages.tsx'
import { TerminalView } from './terminal.tsx'

const TITLES: Record<Tab, string> = {
  conversation: 'Conversation', terminal: 'Terminal', changes: 'Changes', messages: 'Messages', history: 'History', explain: 'Explain',
}

/** A program without a model has no conversation; a task agent no terminal. */
function tabsOf(agent: Agent): Tab[] {
  return TABS.filter(tab => !(tab === 'conversation' && agent.engine === 'command' && agent.kind === 'interactive') && !(tab === 'terminal' && agent.kind === 'headless'))
}

export function Panel({ name, tab }: { name: string; tab: Tab | null }) {
  const agent = useWorld(world => world.agents[name])
  const approvals = useWorld(world => world.approvals)
  const search = useSearch()
  if (!agent) return <div class="card panel"><Empty title={`No agent called ${name}`}><a href="/">All agents</a></Empty></div>
  const tabs = tabsOf(agent)
  const shown = tab && tabs.includes(tab) ? tab : tabs[0]!
  const asks = approvals.filter(one => one.agent === name)
  return (
    <section class="card panel" aria-label={`agent ${name}`}>
      <div class="top">
        <a class="icon-btn only-narrow" href={`/${search}`} aria-label="All agents"><Icon name="back" /></a>
        <h1>{agent.name}</h1>
        <Chip state={agent.state} />
        <span class="dim"><Ago at={agent.since} /></span>
        {shown !== 'explain' && <a class="why" href={`/agents${path(name)}/explain${search}`} title="What this state rests on">Why?</a>}
        <span class="right acts"><Acts agent={agent} /></span>
      </div>
      <div class="facts-line">
        <span>{[agent.role, agent.engine, agent.model].filter(Boolean).join(' · ')}</span>
        {agent.birth_branch && <span>branch <code><Literal text={agent.birth_branch} /></code></span>}
        {agent.pod && <span>pod {agent.pod}</span>}
        {agent.parent && <span>child of <a href={`/agents${path(agent.parent)}`}>{agent.parent}</a></span>}
        {agent.tokens > 0 && <span>{count(agent.tokens)} tokens · {money(agent.usd)}{agent.budget?.usd ? ` of ${money(agent.budget.usd)}` : ''}</span>}
        <span>{agent.is_sandboxed ? 'sandboxed' : 'not sandboxed'}</span>
      </div>
      <nav class="tabs" aria-label={`of ${name}`}>
        {tabs.map(each => (
          <a key={each} ref={tab => { if (each === shown) tab?.scrollIntoView({ block: 'nearest', inline: 'nearest' }) }} href={`/agents${path(name)}/${each}${search}`} aria-current={each === shown ? 'page' : undefined}>{TITLES[each]}{each === 'messages' && agent.messages > 0 && <> <b class="badge">{agent.messages}</b></>}</a>
        ))}
      </nav>
      <div class="content" key={`${name}:${shown}`}>
        {shown !== 'explain' && asks.map((one, place) => <Ask key={one.id} approval={one} place={place} />)}
        {shown === 'conversation' && <Conversation agent={agent} />}
        {shown === 'terminal' && (isEnded(agent.state) ? <Empty title="Its program has ended"><code>bullpen logs {name}</code></Empty> : <TerminalView name={name} run={agent.run} />)}
        {shown === 'changes' && <Changes agent={agent} />}
        {shown === 'messages' && <Messages agent={agent} />}
        {shown === 'history' && <History agent={agent} />}
        {shown === 'explain' && <><Explain agent={agent} />{asks.map((one, place) => <Ask key={one.id} approval={one} place={place} />)}</>}
      </div>
    </section>
  )
}

function Acts({ agent }: { agent: Agent }) {
  const isLive = useWorld(world => world.link.is === 'live')
  const [isAsking, setAsking] = useState(false)
  const again = async (how: 'resume' | 'restart') => {
    try {
      await post(`/agents${path(agent.name)}/${how}`)
      say(`${agent.name} runs again`)
      refresh(['agents'])
    } catch (error) {
      sayRefused(error)
    }
  }
  if (!agent.running) return <button class="btn" disabled={!isLive} onClick={() => void again(agent.engine === 'command' ? 'restart' : 'resume')}>Start again</button>
  return (
    <>
      <button class="btn" disabled={!isLive} onClick={() => setAsking(true)}>Stop…</button>
      {isAsking && (
        <Confirm title={`Stop ${agent.name}?`} does="Stop" isDanger onClose={() => setAsking(false)} onDo={async () => {
          await remove(`/agents${path(agent.name)}`)
          say(`${agent.name} has ended`)
          refresh(['agents'])
        }}>
          <p>Its program is told to end. Its session, worktree and branch stay, and it can be started again.</p>
        </Confirm>
      )}
    </>
  )
}
