// Tokens and cost over time, by agent, pod or role; and who did what when.
import { useState } from 'preact/hooks'
import type { UsageReport, UsageSeries } from '../model/nouns.ts'
import type { What } from '../model/series.ts'
import { count, money, span } from '../model/text.ts'
import { path } from '../live/http.ts'
import { useWorld } from '../live/store.ts'
import { Columns } from '../parts/columns.tsx'
import { useFetched } from '../parts/fetched.tsx'
import { Empty, Literal, Problem } from '../parts/text.tsx'
import { Timeline } from '../parts/timeline.tsx'

const DAY = 86_400
type By = 'agent' | 'pod' | 'role'
type Span = { title: string; step: '15m' | '1h' | '1d'; query: Record<string, number> }
const SPANS: Span[] = [
  { title: 'Today', step: '15m', query: { since_seconds: 0 } },
  { title: '7 days', step: '1h', query: { since_seconds: 6 * DAY } },
  { title: '30 days', step: '1d', query: { since_seconds: 29 * DAY } },
  { title: 'Everything', step: '1d', query: {} },
]

export function Usage() {
  const [since, setSince] = useState(SPANS[0]!)
  const [by, setBy] = useState<By>('agent')
  const [what, setWhat] = useState<What>('usd')
  const news = useWorld(world => world.usdToday)
  const series = useFetched<UsageSeries>('/usage/series', { by, step: since.step, ...since.query }, news)
  const report = useFetched<UsageReport>('/usage', { by, ...since.query }, news)
  const total = report.value?.total
  const isUsed = series.value && series.value.lines.some(line => line[what].some(amount => amount > 0))
  return (
    <div class="wide stack">
      <h1 class="unseen">Usage</h1>
      <div class="acts">
        <div class="segments" role="group" aria-label="Since">{SPANS.map(each => <button key={each.title} aria-pressed={since === each} onClick={() => setSince(each)}>{each.title}</button>)}</div>
        <div class="segments" role="group" aria-label="Add up by">{(['agent', 'pod', 'role'] as const).map(each => <button key={each} aria-pressed={by === each} onClick={() => setBy(each)}>by {each}</button>)}</div>
        {total && <span class="right summary"><b>{money(total.usd)}</b> · <b>{count(total.input + total.output + total.cache_write)}</b> tokens · {count(total.requests)} requests · {span(total.work_seconds)} of work</span>}
      </div>
      {report.error !== null && <Problem error={report.error} />}
      <section class="card" aria-label="Over time">
        <header>
          <h2>{what === 'usd' ? 'Cost' : 'Tokens'} by {since.step === '15m' ? 'quarter of an hour' : since.step === '1h' ? 'hour' : 'day'}</h2>
          <div class="segments right" role="group" aria-label="What is drawn">{([['usd', 'cost'], ['tokens', 'tokens']] as const).map(([each, title]) => <button key={each} aria-pressed={what === each} onClick={() => setWhat(each)}>{title}</button>)}</div>
        </header>
        {series.error !== null && <div class="pad"><Problem error={series.error} /></div>}
        {series.value && (isUsed ? <div class="pad"><Columns series={series.value} what={what} /></div> : <Empty title={what === 'usd' ? 'Nothing was spent' : 'Nothing was used'}>Engines tell tokens and cost as they work.</Empty>)}
      </section>
      <Table by={by} report={report.value} />
      <Timeline />
    </div>
  )
}

/** Nothing is a dash: what was used stands out. */
function Figure({ of, as }: { of: number; as: (number: number) => string }) {
  return of > 0 ? <td class="num">{as(of)}</td> : <td class="num dim">–</td>
}

function Table({ by, report }: { by: By; report: UsageReport | null }) {
  if (!report || report.rows.length === 0) return null
  const rows = [...report.rows].sort((a, b) => b.used.usd - a.used.usd || b.used.output - a.used.output)
  return (
    <section class="card" aria-label={`By ${by}`}>
      <div class="scroll" tabIndex={0} role="group" aria-label="usage table">
        <table class="plain">
          <thead><tr><th>{by}</th><th class="num">cost</th><th class="num">tokens</th><th class="num">from the cache</th><th class="num">requests</th><th class="num">tools</th><th class="num">work</th></tr></thead>
          <tbody>{rows.map(({ name, used }) => (
            <tr key={name}>
              <td class="nowrap">{by === 'agent' ? <a href={`/agents${path(name)}`}><Literal text={name} /></a> : <Literal text={name || `no ${by}`} />}</td>
              <Figure of={used.usd} as={money} /><Figure of={used.input + used.output + used.cache_write} as={count} /><Figure of={used.cache_read} as={count} />
              <Figure of={used.requests} as={count} /><Figure of={used.tool_calls} as={count} /><Figure of={used.work_seconds} as={span} />
            </tr>
          ))}</tbody>
        </table>
      </div>
    </section>
  )
}
