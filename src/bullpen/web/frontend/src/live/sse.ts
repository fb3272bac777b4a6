// Server-sent events out of pieces of text. Pure.

export interface Sent { id: string; name: string; data: string }

/** Gives whole events; keeps what is not whole yet. A comment is an event without a name. */
export class SentReader {
  #rest = ''

  feed(piece: string): Sent[] {
    const text = this.#rest + piece.replaceAll('\r\n', '\n')
    const parts = text.split('\n\n')
    this.#rest = parts.pop() ?? ''
    return parts.map(read)
  }
}

function read(block: string): Sent {
  const sent = { id: '', name: '', data: '' }
  const data: string[] = []
  for (const line of block.split('\n')) {
    const at = line.indexOf(':')
    const field = at < 0 ? line : line.slice(0, at)
    const value = at < 0 ? '' : line.slice(at + 1).replace(/^ /, '')
    if (field === 'id') sent.id = value
    else if (field === 'event') sent.name = value
    else if (field === 'data') data.push(value)
  }
  sent.data = data.join('\n')
  return sent
}
