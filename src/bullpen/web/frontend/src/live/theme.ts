// Light or dark: as the system says, until a person says otherwise.
import { cell } from './cell.ts'

export type Theme = 'system' | 'light' | 'dark'
const system = matchMedia('(prefers-color-scheme: dark)')

export const theme = cell<Theme>((localStorage.getItem('bullpen.theme') as Theme | null) ?? 'system')
export const isDark = cell(false)

function apply(): void {
  isDark.set(theme.get() === 'dark' || (theme.get() === 'system' && system.matches))
  document.documentElement.dataset['bsTheme'] = isDark.get() ? 'dark' : 'light'
}

export function toggleTheme(): void {
  const next: Theme = isDark.get() ? 'light' : 'dark'
  // What the system says is not kept: it may change in the evening.
  const isSystems = (next === 'dark') === system.matches
  theme.set(isSystems ? 'system' : next)
  localStorage.setItem('bullpen.theme', theme.get())
  apply()
}

apply()
system.addEventListener('change', apply)
