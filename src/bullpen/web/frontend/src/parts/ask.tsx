// An approval or a question as a card that can be answered where it stands.
import { useEffect, useRef, useState } from 'preact/hooks'
import type { Approval, WholeApproval } from '../model/nouns.ts'
import { readEdits } from '../model/request.ts'
import { sizeOf } from '../model/text.ts'
import { fresh, path, post, Refused } from '../live/http.ts'
import { refresh } from '../live/connect.ts'
import { useWorld } from '../live/store.ts'
import { chosen, SEEN_MS } from '../live/keys.ts'
import { Edits } from './diff.tsx'
import { useFetched } from './fetched.tsx'
import { StateIcon } from './icons.tsx'
import { Questions } from './questions.tsx'
import { Ago, Command, Literal, Problem } from './text.tsx'
import { say, sayRefused } from './toasts.tsx'

const EDITING = ['Edit', 'MultiEdit', 'Write']

/** All of it, when its list entry is only the beginning or its input is shown as a diff. */
function useWhole(approval: Approval): { whole: WholeApproval | null; error: unknown; isNeeded: boolean } {
  const isNeeded = approval.more > 0 || EDITING.includes(approval.tool)
  const { value, error } = useFetched<WholeApproval>(isNeeded ? path('approvals', String(approval.id)) : null)
  return { whole: value, error, isNeeded }
}

function Body({ approval, whole }: { approval: Approval; whole: WholeApproval | null }) {
  const shown = whole && readEdits(approval.tool, whole.input)
  if (!shown) return <Command text={whole?.text ?? approval.text} />
  return <Edits shown={shown} />
}

/** Who was first, in the words of the approval as it is now. */
function firstAnswer(error: Refused): string {
  const state = error.details['state'] as { status?: string; decision?: string; by?: string; name?: string; why?: string } | undefined
  if (state?.status === 'answered') {
    const who = state.name || (state.by === 'reviewer' ? 'The reviewer' : 'Somebody else')
    return `${who} was first: ${state.decision === 'allow' ? 'allowed' : 'denied'}`
  }
  return error.hint ? `${error.message} · ${error.hint}` : error.message
}

type Open = '' | 'deny' | 'always'
const DONE = { allow: 'allowed', deny: 'denied' } as const

/** Whether it has stood at that place for a while. When the one above it is answered elsewhere, it
 *  slips under a finger that was about to press another's button. */
function useStill(place: number): boolean {
  const [still, setStill] = useState(-1)
  useEffect(() => {
    const timer = setTimeout(() => setStill(place), SEEN_MS)
    return () => clearTimeout(timer)
  }, [place])
  return still === place
}

/** `place`: how many stand before it. */
export function Ask({ approval, place }: { approval: Approval; place: number }) {
  const key = `approval:${approval.id}`
  const isLive = useWorld(world => world.link.is === 'live')
  const isChosen = chosen.use() === key
  const [open, setOpen] = useState<Open>('')
  const [sent, setSent] = useState('')
  const reason = useRef<HTMLInputElement>(null)
  const { whole, error, isNeeded } = useWhole(approval)
  useEffect(() => { if (open === 'deny') reason.current?.focus() }, [open])

  const send = async (what: string, route: string, body: Record<string, unknown>) => {
    setSent(what)
    try {
      await post(`/approvals/${approval.id}${route}`, { ...body, answer: fresh() })
      say(`${approval.agent}: ${what} by you`, what === 'denied' ? 'bad' : 'done')
      refresh(['approvals'])
    } catch (failure) {
      setSent('')
      if (failure instanceof Refused && failure.status === 409) {
        say(`${approval.agent}: ${firstAnswer(failure)}`, 'wait')
        refresh(['approvals'])
      } else {
        sayRefused(failure)
      }
    }
  }
  const decide = (decision: 'allow' | 'deny', more: Record<string, unknown> = {}) => void send(DONE[decision], '', { decision, ...more })

  const isQuestion = approval.questions.length > 0
  const isReachable = approval.state.status === 'waiting' && approval.state.reachable
  const isStill = useStill(place)
  const isReady = isLive && isStill && !sent && (!isNeeded || whole !== null)
  const isDirectors = approval.run.startsWith('director:')  // no agent's run has a colon
  // Its buttons are pressed without a look at the end: then one knows at least that there is more.
  const size = isQuestion || isDirectors || (whole && readEdits(approval.tool, whole.input)) ? '' : sizeOf(whole?.text ?? approval.text)
  const title = isQuestion ? 'question' : isDirectors ? 'decision' : approval.tool === 'Land' ? 'landing' : 'permission'
  return (
    <article class={`ask${isChosen ? ' chosen' : ''}${isStill ? '' : ' moving'}`} data-item={key} aria-label={`${title} of ${approval.agent}`}>
      <div class="top">
        <span class="state need"><StateIcon look="need" />{title}</span>
        <a href={`/${isDirectors ? 'directors' : 'agents'}${path(approval.agent)}`}><b>{approval.agent}</b></a>
        {isDirectors && <span>goes no further</span>}
        {!isQuestion && !isDirectors && <span>wants <b><Literal text={approval.tool} /></b></span>}
        {size && <span class="dim small nowrap">{size}</span>}
        <span class="right dim small nowrap"><a class="dim" href={`/approvals/${approval.id}`}>#{approval.id}</a> · <Ago at={approval.asked} /></span>
      </div>
      <div class="body">
        {isQuestion && isReachable
          ? <Questions questions={approval.questions} isReady={isReady} onAnswer={answers => void send('answered', '/answers', { answers })} />
          : isQuestion ? <p class="asked"><Literal text={approval.text} /></p> : <Body approval={approval} whole={whole} />}
        {error !== null && <Problem error={error} />}
        {whole && whole.more > 0 && <p class="note">{whole.more} more characters were not kept: look at its terminal before you allow it</p>}
        {approval.state.status === 'waiting' && approval.state.reviewing && <p class="note">The reviewer looks at it, too; you may answer first.</p>}
        {approval.review && <p class="note">The reviewer said: <Literal text={approval.review} /></p>}
      </div>
      <div class="foot stack">
        {sent && <p class="dim" role="status">{sent}…</p>}
        {!isReachable && <div class="acts"><a class="btn main" href={`/agents${path(approval.agent)}/terminal`}>Answer in its terminal</a></div>}
        {isReachable && !isQuestion && open === '' && (
          <div class="acts">
            <button class="btn main" data-key="a" disabled={!isReady} onClick={() => decide('allow')}>{isDirectors ? 'Try again' : 'Allow'} <kbd>a</kbd></button>
            <button class="btn" data-key="d" disabled={!isReady} onClick={() => isDirectors ? decide('deny') : setOpen('deny')}>{isDirectors ? 'Leave it' : 'Deny…'} <kbd>d</kbd></button>
            {!isDirectors && <button class="btn" data-key="A" disabled={!isReady} onClick={() => setOpen('always')}>Always… <kbd>A</kbd></button>}
          </div>
        )}
        {open === 'deny' && (
          <form class="stack" onSubmit={event => { event.preventDefault(); decide('deny', { reason: reason.current?.value ?? '' }) }}>
            <label><span>Why? The agent reads it; may be empty</span><input ref={reason} maxLength={2000} autocomplete="off" /></label>
            <div class="acts">
              <button class="btn danger" disabled={!isReady}>Deny</button>
              <button type="button" class="btn plain" data-key="Escape" onClick={() => setOpen('')}>Back</button>
            </div>
          </form>
        )}
        {open === 'always' && <Always approval={approval} isReady={isReady} onBack={() => setOpen('')} onAlways={role => decide('allow', { always: true, role })} />}
      </div>
    </article>
  )
}

function Always({ approval, isReady, onBack, onAlways }: { approval: Approval; isReady: boolean; onBack: () => void; onAlways: (role: boolean) => void }) {
  const { rule, wider, why_not: whyNot } = approval.rule
  const first = useRef<HTMLButtonElement>(null)
  useEffect(() => { first.current?.focus() }, [])
  const back = <button type="button" class="btn plain" data-key="Escape" onClick={onBack}>Back</button>
  if (!rule) return <div class="stack"><p class="note">No rule can allow this from now on: <Literal text={whyNot} />.</p><div class="acts">{back}</div></div>
  return (
    <div class="stack">
      <p>Allow now, and from now on without a question:</p>
      <Command text={rule} />
      {wider && <p class="note">This allows more than what is asked: <Literal text={wider} />.</p>}
      <div class="acts">
        <button class="btn main" ref={first} disabled={!isReady} onClick={() => onAlways(false)}>For {approval.agent}</button>
        <button class="btn" disabled={!isReady} onClick={() => onAlways(true)}>For its role</button>
        {back}
      </div>
    </div>
  )
}
