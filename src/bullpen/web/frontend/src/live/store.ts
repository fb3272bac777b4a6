// The one place that holds the world; components are drawn again when what they select has changed.
import { useEffect, useReducer, useRef } from 'preact/hooks'
import { NOTHING, type World } from './world.ts'

let world: World = NOTHING
let isDue = false
let told = 0
const EVERY_MS = 120  // between two drawings: nobody reads faster, and many changes cost as little as one
const listeners = new Set<() => void>()

export function current(): World {
  return world
}

/** Change it. Who listens hears of it in the next frame; of many that follow at once, all together. */
export function change(next: (world: World) => World): void {
  const changed = next(world)
  if (changed === world) return
  world = changed
  if (isDue) return
  isDue = true
  const tell = () => {
    if (!isDue) return
    isDue = false
    told = performance.now()
    for (const listener of listeners) listener()
  }
  // Hidden pages get no frames, but titles and notifications have to be right there, too.
  const wait = told + EVERY_MS - performance.now()
  if (wait <= 0 && document.visibilityState === 'visible') requestAnimationFrame(tell)
  setTimeout(tell, wait > 0 ? wait : 100)
}

export function listen(listener: () => void): () => void {
  listeners.add(listener)
  return () => listeners.delete(listener)
}

export function useWorld<T>(select: (world: World) => T): T {
  const [, draw] = useReducer((n: number) => n + 1, 0)
  const selected = select(world)
  const last = useRef({ select, selected })
  last.current = { select, selected }
  useEffect(() => {
    const look = () => {
      if (!Object.is(last.current.select(world), last.current.selected)) draw(0)
    }
    look()
    return listen(look)
  }, [])
  return selected
}
