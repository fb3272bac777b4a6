// The page as a whole: bar, what the address names, what lies over it.
import { useEffect } from 'preact/hooks'
import { get } from './live/http.ts'
import { useRoute } from './live/route.ts'
import { useWorld } from './live/store.ts'
import { AgentPage } from './pages/agent.tsx'
import { Approvals } from './pages/approvals.tsx'
import { Changes } from './pages/changes.tsx'
import { Directors } from './pages/directors.tsx'
import { Overview } from './pages/overview.tsx'
import { Tasks } from './pages/tasks.tsx'
import { Terminals } from './pages/terminals.tsx'
import { Usage } from './pages/usage.tsx'
import { AskName } from './parts/name.tsx'
import { Overlay } from './parts/overlay.tsx'
import { Banner, Bar, Bottom, type Me, me } from './parts/bar.tsx'
import { Empty } from './parts/text.tsx'
import { Toasts } from './parts/toasts.tsx'

export function App() {
  const route = useRoute()
  const isLoaded = useWorld(world => world.isLoaded)
  const isBehind = useWorld(world => world.link.is === 'behind')
  useEffect(() => { get<Me>('/me').then(found => me.set(found), () => {}) }, [])
  return (
    <div class={isBehind ? 'stale' : ''}>
      <Bar route={route} />
      <Banner />
      <main>{isLoaded ? <Page /> : <Empty title="Connecting to the hub…" />}</main>
      <Bottom route={route} />
      <AskName />
      <Overlay />
      <Toasts />
    </div>
  )
}

function Page() {
  const route = useRoute()
  switch (route.page) {
    case 'overview': return <Overview />
    case 'agent': return <AgentPage name={route.name} tab={route.tab} />
    case 'tasks': return <Tasks id={route.id} />
    case 'changes': return <Changes name={route.name} />
    case 'directors': return <Directors name={route.name} />
    case 'usage': return <Usage />
    case 'terminals': return <Terminals />
    case 'approvals': return <Approvals id={route.id} />
    default: return <div class="card"><Empty title="There is nothing here"><a href="/">Overview</a></Empty></div>
  }
}
