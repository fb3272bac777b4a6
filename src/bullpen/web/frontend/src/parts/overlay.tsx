// Over the page: the keys, and the palette that goes anywhere and does anything.
import type { ComponentChild } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import { lookOf } from '../model/states.ts'
import { KEYS, over } from '../live/keys.ts'
import { path } from '../live/http.ts'
import { go } from '../live/route.ts'
import { useWorld } from '../live/store.ts'
import { toggleTheme } from '../live/theme.ts'
import { Icon, type IconName, StateIcon } from './icons.tsx'
import { You } from './name.tsx'

export function Overlay() {
  const what = over.use()
  if (what === 'keys') return <Keys />
  if (what === 'palette') return <Palette />
  if (what === 'you') return <You />
  return null
}

function Keys() {
  const box = useRef<HTMLDivElement>(null)
  useEffect(() => { box.current?.focus() }, [])
  return (
    <div class="veil" onClick={() => over.set('')}>
      <div class="dialog" role="dialog" aria-modal="true" aria-label="Keys" tabIndex={-1} ref={box}>
        <h2>Keys</h2>
        <div class="inner"><dl class="keys">{KEYS.map(([key, does]) => <><dt key={key}>{key.split(' ').map(each => <><kbd>{each}</kbd> </>)}</dt><dd>{does}</dd></>)}</dl></div>
      </div>
    </div>
  )
}

interface Entry { title: string; note: string; icon: ComponentChild; run: () => void }

function Palette() {
  const agents = useWorld(world => world.agents)
  const [words, setWords] = useState('')
  const [at, setAt] = useState(0)
  const list = useRef<HTMLUListElement>(null)
  const place = (title: string, to: string, icon: IconName): Entry => ({ title, note: '', icon: <Icon name={icon} size={16} />, run: () => go(to) })
  const entries: Entry[] = [
    place('Overview', '/', 'home'), place('Approvals', '/approvals', 'inbox'), place('Tasks', '/tasks', 'task'), place('Changes', '/changes', 'branch'), place('Directors', '/directors', 'clock'), place('Usage', '/usage', 'chart'), place('Terminals side by side', '/terminals', 'terminal'),
    { title: 'Light or dark', note: 't', icon: <Icon name="theme" size={16} />, run: toggleTheme },
    { title: 'You', note: 'name, log out', icon: <Icon name="you" size={16} />, run: () => over.set('you') },
    { title: 'Keys', note: '?', icon: <kbd>?</kbd>, run: () => over.set('keys') },
    ...Object.values(agents).sort((a, b) => Number(b.running) - Number(a.running) || a.name.localeCompare(b.name)).flatMap(agent => {
      const look = lookOf(agent.state)
      const icon = <span class={look}><StateIcon look={look} /></span>
      const to = `/agents${path(agent.name)}`
      return [
        { title: agent.name, note: agent.state.state, icon, run: () => go(to) },
        ...(agent.running && agent.kind === 'interactive' ? [{ title: `${agent.name} terminal`, note: '', icon: <Icon name="terminal" size={16} />, run: () => go(`${to}/terminal`) }] : []),
        ...(agent.worktree ? [{ title: `${agent.name} changes`, note: '', icon: <Icon name="branch" size={16} />, run: () => go(`/changes${path(agent.name)}`) }] : []),
      ]
    }),
  ]
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean)
  const found = entries.filter(entry => wanted.every(word => `${entry.title} ${entry.note}`.toLowerCase().includes(word))).slice(0, 50)
  const current = Math.min(at, Math.max(0, found.length - 1))
  const run = (entry: Entry | undefined) => { if (entry) { over.set(''); entry.run() } }
  useEffect(() => { list.current?.children[current]?.scrollIntoView({ block: 'nearest' }) }, [current])
  return (
    <div class="veil" onClick={event => { if (event.target === event.currentTarget) over.set('') }}>
      <div class="dialog palette" role="dialog" aria-modal="true" aria-label="Go to">
        <input ref={input => input?.focus()} role="combobox" aria-expanded="true" aria-controls="palette-list" aria-activedescendant={`palette-${current}`} aria-label="Go anywhere, do anything" placeholder="Go anywhere, do anything" value={words}
          onInput={event => { setWords(event.currentTarget.value); setAt(0) }}
          onKeyDown={event => {
            if (event.key === 'ArrowDown') setAt(Math.min(found.length - 1, current + 1))
            else if (event.key === 'ArrowUp') setAt(Math.max(0, current - 1))
            else if (event.key === 'Enter') run(found[current])
            else if (event.key !== 'Tab') return
            event.preventDefault()
          }} />
        <ul id="palette-list" role="listbox" aria-label="Found" ref={list}>
          {found.map((entry, index) => (
            <li key={`${entry.title}${index}`} id={`palette-${index}`} role="option" aria-selected={index === current} onClick={() => run(entry)} onMouseMove={() => setAt(index)}>
              {entry.icon}<span>{entry.title}</span><span class="right dim small">{entry.note}</span>
            </li>
          ))}
          {found.length === 0 && <li class="dim" role="option" aria-selected="false">Nothing is called so</li>}
        </ul>
      </div>
    </div>
  )
}
