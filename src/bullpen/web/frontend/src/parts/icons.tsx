// Shapes, drawn with the colour of their text. In the manner of Tabler's icons.
import type { Look } from '../model/states.ts'

const PATHS = {
  need: 'M12 4 3 20h18zM12 10v4M12 17v.01',
  bad: 'M18 6 6 18M6 6l12 12',
  done: 'm5 12 5 5L20 7',
  home: 'M4 11 12 4l8 7M6 9.5V20h12V9.5',
  inbox: 'M4 4h16v16H4zM4 13h4l1.5 3h5L16 13h4',
  task: 'M5 5h14v14H5zM9 12l2 2 4-4',
  branch: 'M7 18V6M7 18a2 2 0 1 0 .01 0M7 6a2 2 0 1 0-.01 0M17 8a2 2 0 1 0-.01 0M17 8v2a4 4 0 0 1-4 4H7',
  clock: 'M12 4a8 8 0 1 0 .01 0M12 8v4.5l3 2',
  chart: 'M4 20h16M7 16v-4M12 16V6M17 16v-7',
  theme: 'M12 3a9 9 0 1 0 0 18zM12 3a9 9 0 0 1 0 18',
  bell: 'M10 5a2 2 0 1 1 4 0 7 7 0 0 1 4 6v3l2 3H4l2-3v-3a7 7 0 0 1 4-6M9 17v1a3 3 0 0 0 6 0v-1',
  terminal: 'm5 7 5 5-5 5M12 19h7',
  plus: 'M12 5v14M5 12h14',
  back: 'M15 6l-6 6 6 6',
  you: 'M12 4a4 4 0 1 0 .01 0M5 20v-1a5 5 0 0 1 5-5h4a5 5 0 0 1 5 5v1',
  search: 'M10 4a6 6 0 1 0 .01 0M21 21l-6-6',
} as const
export type IconName = keyof typeof PATHS

export function Icon({ name, size = 18 }: { name: IconName; size?: number }) {
  return (
    <svg width={size} height={size} viewBox="0 0 24 24" fill="none" stroke="currentColor" stroke-width="2" stroke-linecap="round" stroke-linejoin="round" aria-hidden="true">
      <path d={PATHS[name]} />
    </svg>
  )
}

/** One shape for each look, told apart without colour. */
export function StateIcon({ look, size = 15 }: { look: Look; size?: number }) {
  const line = { fill: 'none', stroke: 'currentColor', 'stroke-width': 2.4, 'stroke-linecap': 'round', 'stroke-linejoin': 'round' } as const
  return (
    <svg width={size} height={size} viewBox="0 0 24 24" aria-hidden="true">
      {look === 'need' && <path d="M12 3 2.5 20.5h19zM12 10v4.5M12 17.5v.01" {...line} />}
      {look === 'work' && <circle cx="12" cy="12" r="8" fill="currentColor" />}
      {look === 'wait' && <path d="M12 4a8 8 0 1 0 .01 0M12 8v4.5l3 2" {...line} />}
      {look === 'idle' && <circle cx="12" cy="12" r="7.5" {...line} />}
      {look === 'bad' && <path d="M18 6 6 18M6 6l12 12" {...line} />}
      {look === 'done' && <path d="m4.5 12.5 5 5 10-11" {...line} />}
      {look === 'dark' && <path d="M8.5 8a3.5 3.5 0 1 1 5 3.2c-1 .6-1.5 1.3-1.5 2.8M12 18.5v.01" {...line} />}
    </svg>
  )
}
