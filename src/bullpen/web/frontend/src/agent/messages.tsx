// What was written to an agent, how far it got, and a line to write more.
import { useState } from 'preact/hooks'
import type { Agent, Message } from '../model/nouns.ts'
import { clock } from '../model/text.ts'
import { path, post } from '../live/http.ts'
import { useWorld } from '../live/store.ts'
import { useCalm, useFetched } from '../parts/fetched.tsx'
import { useOnce } from '../parts/once.ts'
import { Empty, Literal, Problem } from '../parts/text.tsx'

export function Messages({ agent }: { agent: Agent }) {
  const calm = useCalm(useWorld(world => world.touched[agent.name]), 300)
  const isLive = useWorld(world => world.link.is === 'live')
  const { value, error, reload } = useFetched<{ messages: Message[] }>(`/agents${path(agent.name)}/messages`, { limit: 100 }, calm)
  const [text, setText] = useState('')
  const [isUrgent, setUrgent] = useState(false)
  const [failure, setFailure] = useState<unknown>(null)
  const once = useOnce(newId)
  const send = async () => {
    if (!isLive || !text.trim()) return
    setFailure(null)
    try {
      await post(`/agents${path(agent.name)}/messages`, { text, id: once.id([text, isUrgent]), priority: isUrgent ? 'urgent' : 'normal' })
      setText('')
      once.done()
      reload()
    } catch (refused) {
      setFailure(refused)
    }
  }
  return (
    <div class="stack">
      <form class="compose" onSubmit={event => { event.preventDefault(); void send() }}>
        <textarea aria-label={`Write to ${agent.name}`} placeholder={`Write to ${agent.name}`} value={text} onInput={event => setText(event.currentTarget.value)}
          onKeyDown={event => { if (event.key === 'Enter' && !event.shiftKey) { event.preventDefault(); void send() } }} />
        <label class="nowrap small check"><input type="checkbox" class="auto" checked={isUrgent} onChange={() => setUrgent(!isUrgent)} /> urgent</label>
        <button class="btn main" disabled={!isLive || !text.trim()}>Send</button>
      </form>
      {failure !== null && <Problem error={failure} />}
      {error !== null && <Problem error={error} />}
      {value?.messages.length === 0 && <Empty title="No messages yet" />}
      {value && value.messages.length > 0 && (
        <div class="card">
          {[...value.messages].reverse().map(message => (
            <div key={message.id} class="message">
              <span class="small"><b><Literal text={message.sender === 'root' ? 'you' : message.sender} /></b> <span class="dim">{clock(message.created)}{message.priority !== 'normal' && ` · ${message.priority}`}</span></span>
              <span class="small dim">{message.status}{message.why && <> · <Literal text={message.why} /></>}</span>
              <div class="said"><Literal text={message.text} /></div>
            </div>
          ))}
        </div>
      )}
    </div>
  )
}

function newId(): string {
  return `m-${crypto.randomUUID().replaceAll('-', '').slice(0, 12)}`
}
