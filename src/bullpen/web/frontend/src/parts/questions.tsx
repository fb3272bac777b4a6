// Questions of an agent with their options, and words of one's own.
import { useState } from 'preact/hooks'
import type { Question } from '../model/nouns.ts'
import { Literal } from './text.tsx'

interface Given { labels: string[]; own: string }

export function Questions({ questions, isReady, onAnswer }: { questions: Question[]; isReady: boolean; onAnswer: (answers: string[]) => void }) {
  const [given, setGiven] = useState<Given[]>(() => questions.map(() => ({ labels: [], own: '' })))
  const update = (at: number, next: Given) => setGiven(given.map((one, index) => (index === at ? next : one)))
  const answers = given.map(one => [...one.labels, one.own.trim()].filter(Boolean).join(', '))
  const only = questions.length === 1 ? questions[0] : undefined
  // One question, one answer: the options themselves are the buttons.
  const isDirect = only !== undefined && !only.multi_select && only.options.length > 0 && only.options.every(one => !one.description)
  return (
    <form class="stack" onSubmit={event => { event.preventDefault(); if (answers.every(Boolean)) onAnswer(answers) }}>
      {questions.map((question, at) => (
        <fieldset key={at} class="stack bare">
          <legend class="asked"><Literal text={question.question} /></legend>
          {isDirect
            ? <div class="acts wrap">{question.options.map((option, number) => (
                <button key={option.label} type="button" class="btn" disabled={!isReady} data-key={String(number + 1)} onClick={() => onAnswer([option.label])}>
                  <Literal text={option.label} /> <kbd>{number + 1}</kbd>
                </button>))}
              </div>
            : question.options.length > 0 && <div class="options">{question.options.map(option => {
                const isOn = given[at]!.labels.includes(option.label)
                const toggle = () => update(at, {
                  ...given[at]!,
                  labels: !question.multi_select ? [option.label] : isOn ? given[at]!.labels.filter(one => one !== option.label) : [...given[at]!.labels, option.label],
                })
                return (
                  <label key={option.label}>
                    <input type={question.multi_select ? 'checkbox' : 'radio'} name={`q${at}`} checked={isOn} onChange={toggle} />
                    <div class="anywhere"><Literal text={option.label} />{option.description && <small><Literal text={option.description} /></small>}</div>
                  </label>
                )
              })}</div>}
          <div class="compose">
            <input aria-label={`your own answer to: ${question.question}`} placeholder="Your own answer" maxLength={4000} autocomplete="off" value={given[at]!.own}
              onInput={event => update(at, { labels: question.multi_select ? given[at]!.labels : [], own: event.currentTarget.value })} />
            {at === questions.length - 1 && <button class="btn main" disabled={!isReady || !answers.every(Boolean)}>Answer</button>}
          </div>
        </fieldset>
      ))}
    </form>
  )
}
