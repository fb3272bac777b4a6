// Names for what is sent: the same again, after a lost answer, counts once; what was changed is another.
import { useRef } from 'preact/hooks'
import { fresh } from '../live/http.ts'

interface Once { id: (content: unknown) => string; done: () => void }

export function useOnce(make: () => string = fresh): Once {
  const sent = useRef({ content: '', id: '' })
  return {
    id: content => {
      const words = JSON.stringify(content)
      if (sent.current.content !== words) sent.current = { content: words, id: make() }
      return sent.current.id
    },
    done: () => { sent.current = { content: '', id: '' } },
  }
}
