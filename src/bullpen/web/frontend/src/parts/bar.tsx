// The bar at the top, that of a phone at the bottom, and what is said when the page is behind.
import { money } from '../model/text.ts'
import { cell } from '../live/cell.ts'
import { restart } from '../live/connect.ts'
import { over } from '../live/keys.ts'
import type { Route } from '../live/route.ts'
import { useWorld } from '../live/store.ts'
import { theme, toggleTheme } from '../live/theme.ts'
import { mayNotify } from '../live/notify.ts'
import { waitingIn } from '../live/world.ts'
import icon from '../look/icon.svg'
import { Icon, type IconName, StateIcon } from './icons.tsx'
import { Ago, Literal } from './text.tsx'
import { say } from './toasts.tsx'

export interface Me { name: string; home: string; version: string }
export const me = cell<Me>({ name: '', home: '', version: '' })

const PAGES: [string, string, IconName, Route['page'][]][] = [
  ['/', 'Overview', 'home', ['overview', 'agent']],
  ['/approvals', 'Approvals', 'inbox', ['approvals']],
  ['/tasks', 'Tasks', 'task', ['tasks']],
  ['/changes', 'Changes', 'branch', ['changes']],
  ['/directors', 'Directors', 'clock', ['directors']],
  ['/usage', 'Usage', 'chart', ['usage']],
]

export function Bar({ route }: { route: Route }) {
  const waiting = useWorld(waitingIn)
  const usd = useWorld(world => world.usdToday)
  const running = useWorld(world => Object.values(world.agents).filter(agent => agent.running).length)
  const isLive = useWorld(world => world.link.is === 'live')
  const isPolled = useWorld(world => world.link.is === 'live' && world.link.isPolled)
  const { home, name } = me.use()
  const consent = mayNotify.use()
  return (
    <header class="bar">
      <a class="brand" href="/"><img src={icon} alt="" />Bullpen <span><Literal text={home} /></span></a>
      <nav class="nav" aria-label="Pages">
        {PAGES.map(([to, title, , pages]) => (
          <a key={to} href={to} aria-current={pages.includes(route.page) ? 'page' : undefined}>{title}{to === '/approvals' && waiting > 0 && <b class="badge hot">{waiting}</b>}</a>
        ))}
      </nav>
      <div class="facts">
        {isLive && <span class="live wide-only" title={isPolled ? 'asked again and again: streams of events are held back on the way, or other tabs have them' : 'connected to the hub'}><i />live{isPolled && ', polled'}</span>}
        <span class="wide-only"><b>{running}</b> running</span>
        {usd !== null && <span><b>{money(usd)}</b><span class="hide-phone"> today</span></span>}
        <button class="icon-btn" aria-label="Search and commands (Ctrl K)" title="Ctrl K" onClick={() => over.set('palette')}><Icon name="search" /></button>
        {consent === 'ask' && <Bell title="Tell me when an agent needs me" press={() => void mayNotify.ask()} />}
        {consent === 'none' && <Bell title={NO_BELL} press={() => say(NO_BELL, 'wait')} />}
        <button class="icon-btn keys-hint" aria-label={`Theme: ${theme.use()}`} title="Light or dark" onClick={toggleTheme}><Icon name="theme" /></button>
        <button class="icon-btn keys-hint" aria-label="Keys" title="Keys: ?" onClick={() => over.set('keys')}><kbd>?</kbd></button>
        <button class="icon-btn" aria-label={`You: ${name || 'no name'}`} title={name || 'You'} onClick={() => over.set('you')}><Icon name="you" /></button>
      </div>
    </header>
  )
}

const NO_BELL = 'This browser shows no notifications'

function Bell({ title, press }: { title: string; press: () => void }) {
  return <button class="icon-btn" aria-label={title} title={title} onClick={press}><Icon name="bell" /></button>
}

export function Bottom({ route }: { route: Route }) {
  const waiting = useWorld(waitingIn)
  return (
    <nav class="bottom" aria-label="Pages">
      {PAGES.map(([to, title, name, pages]) => (
        <a key={to} href={to} aria-current={pages.includes(route.page) ? 'page' : undefined}><Icon name={name} size={20} />{title}{to === '/approvals' && waiting > 0 && <b class="badge hot">{waiting}</b>}</a>
      ))}
    </nav>
  )
}

export function Banner() {
  const link = useWorld(world => world.link)
  if (link.is === 'logged out') {
    return <div class="banner" role="alert"><StateIcon look="bad" /><span>You are logged out.</span><a class="btn tiny" href={location.pathname + location.search} target="_self">Log in</a></div>
  }
  if (link.is !== 'behind') return null
  return (
    <div class="banner" role="alert">
      <StateIcon look="need" />
      <span><b>Behind by <Ago at={link.since} />:</b> <Literal text={link.why} />. What you see was so then, and is brought up to date by itself.</span>
      <button class="btn tiny right" onClick={restart}>Try now</button>
    </div>
  )
}
