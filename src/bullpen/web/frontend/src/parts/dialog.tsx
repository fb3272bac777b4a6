// A question over the page: nothing that destroys or lands happens by one click.
import type { ComponentChildren } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import { useWorld } from '../live/store.ts'
import { Problem } from './text.tsx'

interface Given { title: string; does: string; isDanger?: boolean; onDo: () => Promise<void>; onClose: () => void; children: ComponentChildren }

export function Confirm({ title, does, isDanger = false, onDo, onClose, children }: Given) {
  const box = useRef<HTMLDivElement>(null)
  const [isBusy, setBusy] = useState(false)
  const [error, setError] = useState<unknown>(null)
  const isLive = useWorld(world => world.link.is === 'live')
  useEffect(() => {
    const before = document.activeElement
    box.current?.querySelector<HTMLElement>('input, textarea, button')?.focus()
    return () => { if (before instanceof HTMLElement) before.focus() }
  }, [])
  const act = async () => {
    setBusy(true)
    setError(null)
    try {
      await onDo()
      onClose()
    } catch (failure) {
      setError(failure)
      setBusy(false)
    }
  }
  const isReady = isLive && !isBusy
  const trap = (event: KeyboardEvent) => {
    if (event.key === 'Escape') { event.stopPropagation(); onClose() }
    if (event.key === 'Enter' && event.target instanceof HTMLInputElement && isReady) void act()
    if (event.key !== 'Tab') return
    const all = [...box.current!.querySelectorAll<HTMLElement>('input, textarea, select, button:not(:disabled), a')]
    const edge = event.shiftKey ? all[0] : all.at(-1)
    if (document.activeElement === edge) { event.preventDefault(); (event.shiftKey ? all.at(-1) : all[0])?.focus() }
  }
  return (
    <div class="veil" onClick={event => { if (event.target === event.currentTarget) onClose() }}>
      <div class="dialog" role="dialog" aria-modal="true" aria-label={title} ref={box} onKeyDown={trap}>
        <h2>{title}</h2>
        <div class="inner">{children}{error !== null && <Problem error={error} />}{!isLive && <Problem error="The hub is away: this has to wait until it is back." />}</div>
        <div class="acts">
          <button class="btn" onClick={onClose}>Back</button>
          <button class={`btn ${isDanger ? 'danger' : 'main'}`} disabled={!isReady} onClick={() => void act()}>{isBusy ? 'Wait…' : does}</button>
        </div>
      </div>
    </div>
  )
}
