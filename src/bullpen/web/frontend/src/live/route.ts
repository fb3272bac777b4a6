// Where we are: real paths, so that everything has an address.
import { useEffect, useReducer } from 'preact/hooks'
import { type Grouping, listingSearch, readListing } from '../model/groups.ts'

export type Tab = 'terminal' | 'conversation' | 'changes' | 'messages' | 'history' | 'explain'
export const TABS: Tab[] = ['conversation', 'terminal', 'changes', 'messages', 'history', 'explain']

export type Route =
  | { page: 'overview' }
  | { page: 'agent'; name: string; tab: Tab | null }
  | { page: 'approvals'; id: number | null }
  | { page: 'tasks'; id: string | null }
  | { page: 'changes'; name: string | null }
  | { page: 'directors'; name: string | null }
  | { page: 'usage' }
  | { page: 'terminals' }
  | { page: 'nowhere'; path: string }

export function readRoute(pathname: string): Route {
  const parts = pathname.split('/').filter(Boolean).map(part => {
    try { return decodeURIComponent(part) } catch { return part }
  })
  const [first, second, third] = parts
  if (!first) return { page: 'overview' }
  switch (first) {
    case 'agents':
      if (second) return { page: 'agent', name: second, tab: TABS.find(tab => tab === third) ?? null }
      return { page: 'overview' }
    case 'approvals': return { page: 'approvals', id: second ? Number(second) || null : null }
    case 'tasks': return { page: 'tasks', id: second ?? null }
    case 'changes': return { page: 'changes', name: second ?? null }
    case 'directors': return { page: 'directors', name: second ?? null }
    case 'usage': return { page: 'usage' }
    case 'terminals': return { page: 'terminals' }
    default: return { page: 'nowhere', path: pathname }
  }
}

const listeners = new Set<() => void>()
const tell = () => { for (const listener of listeners) listener() }

export function go(path: string): void {
  show(path === '/' ? home() : path)
}

/** The same for this very address. */
export function show(path: string, replaces = false): void {
  if (path === location.pathname + location.search) return
  if (replaces) history.replaceState(null, '', path)
  else history.pushState(null, '', path)
  tell()
}

/** Drawn again when the address changes. */
function useAddress(): void {
  const [, draw] = useReducer((n: number) => n + 1, 0)
  useEffect(() => {
    const again = () => draw(0)
    listeners.add(again)
    return () => { listeners.delete(again) }
  }, [])
}

export function useRoute(): Route {
  useAddress()
  return readRoute(location.pathname)
}

/** What follows the path of an overview or an agent: its links keep it. */
export function useSearch(): string {
  useAddress()
  return location.search
}

const GROUP = 'bullpen.group'

export function rememberGrouping(by: Grouping): void {
  localStorage.setItem(GROUP, by)
}

/** The overview as this person grouped it last. */
function home(): string {
  return `/${listingSearch(readListing(`?by=${localStorage.getItem(GROUP) ?? ''}`))}`
}

/** Links within the page are followed by us. */
export function catchLinks(): void {
  addEventListener('popstate', tell)
  if (location.pathname === '/' && !location.search) show(home(), true)
  document.addEventListener('click', event => {
    if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return
    const link = event.target instanceof Element ? event.target.closest('a') : null
    if (!link || link.target || link.origin !== location.origin || link.hasAttribute('download')) return
    event.preventDefault()
    go(link.pathname + link.search)
  })
}
