// A value that components can watch: for the little that is of the page alone.
import { useEffect, useReducer } from 'preact/hooks'

export interface Cell<T> { get(): T; set(value: T): void; use(): T; watch(call: () => void): () => void }

export function cell<T>(value: T): Cell<T> {
  const watchers = new Set<() => void>()
  const made: Cell<T> = {
    get: () => value,
    set(next) {
      if (Object.is(next, value)) return
      value = next
      for (const call of [...watchers]) call()
    },
    watch(call) {
      watchers.add(call)
      return () => { watchers.delete(call) }
    },
    use() {
      const [, draw] = useReducer((n: number) => n + 1, 0)
      useEffect(() => made.watch(() => draw(0)), [])
      return value
    },
  }
  return made
}
