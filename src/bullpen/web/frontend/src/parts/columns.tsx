// Columns over time, one part for each of them; the figures are those under the pointer, else all.
import { useEffect, useRef, useState } from 'preact/hooks'
import type { UsageSeries } from '../model/nouns.ts'
import { type Column, REST, type What, columns, labels, stepName, ticks } from '../model/series.ts'
import { count, money } from '../model/text.ts'
import { Literal } from './text.tsx'

const HEIGHT = 200, TOP = 8, BOTTOM = 24, LEFT = 56, RIGHT = 4
const LABEL_WIDTH = 58, WIDEST = 48

export function Columns({ series, what }: { series: UsageSeries; what: What }) {
  const [box, width] = useWidth()
  const [over, setOver] = useState<number | null>(null)
  const list = columns(series, what)
  const figure = what === 'usd' ? money : count
  const lines = ticks(Math.max(...list.map(column => column.sum)))
  const top = lines.at(-1)!
  const inner = Math.max(0, width - LEFT - RIGHT)
  const slot = inner / list.length
  const bar = Math.max(1, Math.min(WIDEST, slot * 0.74))
  const x = (at: number) => LEFT + slot * at
  const y = (amount: number) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - amount / top)
  const point = (event: PointerEvent) => {
    const at = Math.floor((event.clientX - box.current!.getBoundingClientRect().left - LEFT) / slot)
    setOver(at >= 0 && at < list.length ? at : null)
  }
  return (
    <>
      <div ref={box} class="columns" onPointerMove={point} onPointerDown={point} onPointerLeave={() => setOver(null)}>
        <svg width={width} height={HEIGHT} role="img" aria-label={`${what === 'usd' ? 'cost' : 'tokens'} over time: ${inWords(list, figure)}`}>
          {lines.map(amount => (
            <g key={amount}>
              <line class="grid" x1={LEFT} x2={width - RIGHT} y1={y(amount)} y2={y(amount)} />
              <text x={LEFT - 8} y={y(amount) + 4} text-anchor="end">{axisFigure(amount, top, what)}</text>
            </g>
          ))}
          {labels(series, inner / LABEL_WIDTH).map(({ at, text }) => (
            <text key={at} x={series.step === '1d' ? x(at) + slot / 2 : x(at)} y={HEIGHT - 6} text-anchor={series.step === '1d' ? 'middle' : 'start'}>{text}</text>
          ))}
          {over !== null && <rect class="over" x={x(over)} y={TOP} width={slot} height={HEIGHT - TOP - BOTTOM} />}
          {list.map((column, at) => column.parts.map(part => (
            <rect key={part.place + at * (REST + 1)} class={`series-${part.place}`} x={x(at) + (slot - bar) / 2} width={bar} y={y(part.to)} height={Math.max(0.5, y(part.from) - y(part.to))} />
          )))}
        </svg>
      </div>
      <Figures series={series} what={what} column={over === null ? null : list[over] ?? null} figure={figure} />
    </>
  )
}

function Figures({ series, what, column, figure }: { series: UsageSeries; what: What; column: Column | null; figure: (amount: number) => string }) {
  const lines = [...series.lines.map((line, place) => ({ line, place })), ...(series.rest ? [{ line: series.rest, place: REST }] : [])]
  const amount = (place: number, all: number[]) => (column ? column.parts.find(part => part.place === place)?.amount ?? 0 : all.reduce((sum, one) => sum + one, 0))
  return (
    <p class="figures small">
      <span class="dim">{column ? stepName(column.start) : 'All of it'}</span>
      {lines.map(({ line, place }) => (
        <span key={place} class="nowrap"><i class={`series-${place}`} /><Literal text={line.name || `no ${series.by}`} /> <b>{figure(amount(place, line[what]))}</b></span>
      ))}
    </p>
  )
}

/** `$0.002` where cents are too coarse. */
function axisFigure(amount: number, top: number, what: What): string {
  if (what === 'tokens') return count(amount)
  return top < 0.04 && amount > 0 ? `$${amount.toPrecision(1)}` : money(amount)
}

function inWords(list: Column[], figure: (amount: number) => string): string {
  const used = list.filter(column => column.sum > 0).slice(-12)
  return used.map(column => `${stepName(column.start)} ${figure(column.sum)}`).join('; ')
}

function useWidth() {
  const box = useRef<HTMLDivElement>(null)
  const [width, setWidth] = useState(0)
  useEffect(() => {
    const watch = new ResizeObserver(() => setWidth(box.current?.clientWidth ?? 0))
    watch.observe(box.current!)
    return () => watch.disconnect()
  }, [])
  return [box, width] as const
}
