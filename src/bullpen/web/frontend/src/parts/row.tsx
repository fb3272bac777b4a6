// One agent: how it is in a line, what it is in a quieter one. Where there is room both are one line.
import { memo } from 'preact/compat'
import type { Agent } from '../model/nouns.ts'
import { detailOf, lookOf } from '../model/states.ts'
import { count, money } from '../model/text.ts'
import { path } from '../live/http.ts'
import { chosen } from '../live/keys.ts'
import { Icon, StateIcon } from './icons.tsx'
import { Ago, Literal } from './text.tsx'

interface Given { agent: Agent; depth: number; isOpen: boolean; isLive: boolean; note: string; search: string }

export const AgentRow = memo(function AgentRow({ agent, depth, isOpen, isLive, note, search }: Given) {
  const key = `agent:${agent.name}`
  const isChosen = chosen.use() === key
  const look = lookOf(agent.state)
  const detail = detailOf(agent.state)
  const word = `${isLive ? '' : 'was '}${agent.state.state}`
  const budget = agent.budget?.usd
  return (
    <a class={`row agent${isChosen || isOpen ? ' chosen' : ''}`} href={`/agents${path(agent.name)}${search}`} data-item={key} aria-current={isOpen ? 'page' : undefined}>
      <span class={`state ${look}`}><StateIcon look={look} /></span>
      <span class="who">
        {depth > 0 && <span class="branch-line" aria-hidden="true">{'  '.repeat(depth - 1)}└</span>}
        <b>{agent.name}</b>{' '}
        <span class="what"><span class={look === 'need' || look === 'bad' ? look : ''}>{word}</span>{detail && <> · <Literal text={detail} /></>}{note && <> · <Literal text={note} /></>}</span>
      </span>
      <span class="fig">
        {agent.messages > 0 && <span title="messages that wait">✉ {agent.messages}</span>}
        {agent.usd > 0 && <span class="num">{money(agent.usd)}{budget ? ` of ${money(budget)}` : ''}</span>}
        <span><Ago at={agent.since} /></span>
      </span>
      <span class="about">
        {agent.role && <span class="role">{agent.role}</span>}
        <span class="model"><Literal text={agent.model || agent.engine} /></span>
        {agent.birth_branch && <span class="on-branch" title={`branch ${agent.birth_branch}`}><Icon name="branch" size={12} /><span class="unseen">branch </span><Literal text={agent.birth_branch} /></span>}
      </span>
      <span class="used num">{agent.tokens > 0 && `${count(agent.tokens)} tokens`}</span>
    </a>
  )
})
