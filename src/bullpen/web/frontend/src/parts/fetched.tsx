// Something fetched for a place on the page, again whenever `again` changes and when the page is live
// again; what is shown stays meanwhile.
import { useEffect, useRef, useState } from 'preact/hooks'
import { get } from '../live/http.ts'
import { useWorld } from '../live/store.ts'

export interface Fetched<T> { value: T | null; error: unknown; reload: () => void }

export function useFetched<T>(path: string | null, query: Record<string, string | number> = {}, again: unknown = 0): Fetched<T> {
  const [found, setFound] = useState<{ path: string | null; value: T | null; error: unknown }>({ path: null, value: null, error: null })
  const [round, setRound] = useState(0)
  const returns = useWorld(world => world.returns)
  const words = JSON.stringify(query)
  useEffect(() => {
    if (path === null) return
    const abort = new AbortController()
    get<T>(path, JSON.parse(words) as Record<string, string | number>, abort.signal).then(
      value => setFound({ path: path + words, value, error: null }),
      error => { if (!abort.signal.aborted) setFound({ path: path + words, value: null, error }) },
    )
    return () => abort.abort()
  }, [path, words, again, round, returns])
  const isOther = found.path !== null && found.path !== path + words
  return { value: isOther ? null : found.value, error: isOther ? null : found.error, reload: () => setRound(round + 1) }
}

/** A number that changes `ms` after what it follows, and so once in that time where that never rests. */
export function useCalm(value: unknown, ms = 700): number {
  const [calm, setCalm] = useState(0)
  const timer = useRef(0)
  const isFirst = useRef(true)
  useEffect(() => {
    const wasFirst = isFirst.current
    isFirst.current = false
    if (wasFirst || timer.current) return
    timer.current = window.setTimeout(() => { timer.current = 0; setCalm(n => n + 1) }, ms)
  }, [value])
  useEffect(() => () => clearTimeout(timer.current), [])
  return calm
}
