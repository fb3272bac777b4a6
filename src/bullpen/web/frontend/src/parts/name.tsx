// Who are you? Asked once: others then see who answered. Later: another name, or log out.
import { useState } from 'preact/hooks'
import { over } from '../live/keys.ts'
import { logOut, post } from '../live/http.ts'
import { type Me, me } from './bar.tsx'
import { Confirm } from './dialog.tsx'
import { say, sayRefused } from './toasts.tsx'

export function AskName() {
  const { name, home } = me.use()
  const [isLater, setLater] = useState(false)
  return name || !home || isLater ? null : <NameDialog title="Who are you?" onClose={() => setLater(true)} />
}

export function You() {
  return (
    <NameDialog title="You" onClose={() => over.set('')}>
      <p class="acts dim">Logging out ends this log-in, also where its cookie was copied to.<button type="button" class="btn danger right" onClick={() => void logOut().catch(sayRefused)}>Log out</button></p>
    </NameDialog>
  )
}

function NameDialog({ title, onClose, children }: { title: string; onClose: () => void; children?: preact.ComponentChildren }) {
  const [given, setGiven] = useState(me.get().name)
  const save = async () => {
    me.set(await post<Me>('/me', { name: given.trim() }))
    say(`You are ${me.get().name}`)
  }
  return (
    <Confirm title={title} does="That is me" onDo={save} onClose={onClose}>
      <p>Your name stands beside what you decide, so that others see who was first.</p>
      <label><span>Name</span><input value={given} maxLength={40} autocomplete="nickname" onInput={event => setGiven(event.currentTarget.value)} /></label>
      {children}
    </Confirm>
  )
}
