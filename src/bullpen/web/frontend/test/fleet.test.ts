import assert from 'node:assert/strict'
import { test } from 'node:test'
import { agentLook, type Fleet, type Host, type HostAgent, labelsText, others, shownAgents, trouble } from '../src/model/fleet.ts'

const agent = (name: string, change: Partial<HostAgent> = {}): HostAgent =>
  ({ name, role: '', state: 'working', words: 'working', since: 1, running: true, ...change })
const host = (name: string, agents: HostAgent[] = [], reachable = true): Host =>
  ({ state: { name, version: '1', labels: { gpu: 'yes', arch: 'x' }, agents, at: 1 }, reachable, last_heard: 1 })
const fleet: Fleet = { link: 'connected', name: 'laptop', url: 'nats://x', why: '', since: 1, hosts: [host('desk'), host('laptop')] }

test('this machine is not one of the others', () => {
  assert.deepEqual(others(fleet).map(one => one.state.name), ['desk'])
})

test('who needs somebody comes first, and who has ended is not there', () => {
  const agents = [agent('bob'), agent('amy'), agent('eve', { state: 'blocked' }), agent('old', { running: false })]
  assert.deepEqual(shownAgents(host('desk', agents)).map(one => one.name), ['eve', 'amy', 'bob'])
})

test('what was heard of a machine that is away is no present state', () => {
  assert.equal(agentLook(agent('eve', { state: 'blocked' }), true), 'need')
  assert.equal(agentLook(agent('eve', { state: 'blocked' }), false), 'dark')
})

test('why this machine is alone', () => {
  assert.equal(trouble(fleet), '')
  assert.equal(trouble({ ...fleet, link: 'away', why: 'refused' }), 'Not connected to nats://x: refused. This machine goes on by itself.')
  assert.equal(trouble({ ...fleet, why: 'it keeps nothing' }), 'Connected to nats://x, but it keeps nothing.')
  assert.equal(trouble({ ...fleet, link: 'connecting' }), 'Connecting to nats://x. This machine goes on by itself.')
  assert.equal(labelsText(host('desk')), 'arch=x, gpu=yes')
})
