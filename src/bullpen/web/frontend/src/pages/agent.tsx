import type { Tab } from '../live/route.ts'
import { Panel } from '../agent/panel.tsx'
import { AgentList } from '../parts/list.tsx'

export function AgentPage({ name, tab }: { name: string; tab: Tab | null }) {
  return (
    <div class="two on-agent">
      <div class="list"><AgentList open={name} /></div>
      <Panel name={name} tab={tab} />
    </div>
  )
}
