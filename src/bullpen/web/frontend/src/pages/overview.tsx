// Who needs me, who is stuck, what changed, what does it cost.
import type { Agent } from '../model/nouns.ts'
import { clock, many, money } from '../model/text.ts'
import { path } from '../live/http.ts'
import { gather, type Gathered } from '../live/news.ts'
import { useWorld } from '../live/store.ts'
import { Components } from '../parts/components.tsx'
import { ConflictsCard } from '../parts/conflicts.tsx'
import { DirectorsCard } from '../parts/directors.tsx'
import { AgentList, NeedsYou } from '../parts/list.tsx'
import { Machines } from '../parts/machines.tsx'
import { LandingRow } from '../parts/landing.tsx'
import { StateIcon } from '../parts/icons.tsx'
import { Empty, Literal } from '../parts/text.tsx'
import type { Look } from '../model/states.ts'

const TONES: Record<string, Look> = { good: 'done', bad: 'bad', need: 'need', plain: 'idle' }

export function Overview() {
  return (
    <div class="three">
      <h1 class="unseen">Overview</h1>
      <NeedsYou />
      <AgentList open="" />
      <div class="side stack"><ToLand /><ConflictsCard /><DirectorsCard /><Machines /><News /><Costs /><Components /></div>
    </div>
  )
}

function ToLand() {
  const landings = useWorld(world => world.landings)
  const open = landings.filter(one => !['landed', 'cancelled', 'refused'].includes(one.status.state))
  if (!open.length) return null
  return (
    <section class="card" aria-label="Landing">
      <header><h2>Landing</h2><b class="badge">{open.length}</b><a class="right small" href="/changes">Changes</a></header>
      {open.map(one => <LandingRow key={one.id} landing={one} />)}
    </section>
  )
}

function News() {
  const news = gather(useWorld(world => world.news))
  return (
    <section class="card" aria-label="What changed">
      <header><h2>What changed</h2></header>
      {news.length === 0 && <Empty title="Nothing yet">What agents finish, land or fail at is told here.</Empty>}
      <ul class="news pad-y">
        {news.slice(0, 14).map(item => (
          <li key={item.id} data-news={item.id}>
            <span class={TONES[item.tone]}><StateIcon look={TONES[item.tone]!} size={13} /></span>
            {item.to ? <a href={item.to}><Item item={item} /></a> : <span><Item item={item} /></span>}
            <time class="dim small">{clock(item.at)}</time>
          </li>
        ))}
      </ul>
    </section>
  )
}

function Item({ item }: { item: Gathered }) {
  return (
    <>
      {item.agent && <><b>{item.agent}</b>{item.others > 0 && ` and ${many(item.others, 'other')}`} </>}
      <Literal text={item.text} />{item.others === 0 && item.times > 1 && `, ${item.times} times`}
    </>
  )
}

function Costs() {
  const agents = useWorld(world => world.agents)
  const spent = Object.values(agents).filter(agent => agent.usd > 0).sort((a, b) => b.usd - a.usd).slice(0, 8)
  if (!spent.length) return null
  const most = spent[0]!.usd
  const share = (agent: Agent) => agent.usd / (agent.budget?.usd ?? most)
  return (
    <section class="card" aria-label="Cost">
      <header><h2>Cost by agent</h2><a class="right small" href="/usage">Usage</a></header>
      <div class="costs">
        {spent.map(agent => (
          <>
            <a href={`/agents${path(agent.name)}`}>{agent.name}</a>
            <span class="track"><i class={agent.budget?.usd && share(agent) > 0.8 ? 'much' : ''} ref={bar => { if (bar) bar.style.width = `${Math.min(100, Math.max(2, share(agent) * 100))}%` }} /></span>
            <span class="num small">{money(agent.usd)}{agent.budget?.usd ? <span class="dim"> of {money(agent.budget.usd)}</span> : null}</span>
          </>
        ))}
      </div>
    </section>
  )
}
