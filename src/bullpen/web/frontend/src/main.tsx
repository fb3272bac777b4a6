import { render } from 'preact'
import './look/base.css'
import './look/layout.css'
import { App } from './app.tsx'
import { connect } from './live/connect.ts'
import { catchKeys } from './live/keys.ts'
import { watchWaiting } from './live/notify.ts'
import { catchLinks } from './live/route.ts'
import { toggleTheme } from './live/theme.ts'

catchLinks()
catchKeys(toggleTheme)
watchWaiting()
connect()
render(<App />, document.getElementById('app')!)
