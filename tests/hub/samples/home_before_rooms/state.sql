PRAGMA user_version = 5;
PRAGMA application_id = 0;
BEGIN TRANSACTION;
CREATE TABLE components (
        name TEXT PRIMARY KEY,
        kind TEXT NOT NULL,
        url TEXT NOT NULL,
        pid INTEGER NOT NULL,
        version TEXT NOT NULL,
        start_time TEXT NOT NULL,
        registered REAL NOT NULL
    ) WITHOUT ROWID
    ;
CREATE TABLE events (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        time REAL NOT NULL,
        kind TEXT NOT NULL,
        agent TEXT NOT NULL,
        data TEXT NOT NULL,
        key TEXT
    );
INSERT INTO "events" VALUES(1,1.79490323724525713917e+09,'hub.started','','{"version":"0.1.0","pid":31236}',NULL);
INSERT INTO "events" VALUES(2,1.7949032372537522316e+09,'upkeep.worktrees','','{"removed":[],"left":{},"recovered":0,"expired":0,"failed":{},"with_copies":[]}',NULL);
INSERT INTO "events" VALUES(3,1.79490323725455927852e+09,'upkeep.events','','{"expired":0}',NULL);
INSERT INTO "events" VALUES(4,1.79490323735412836076e+09,'agent.starting','amy','{"run":"0d5c714001ab45f8aa625eefafdca796","pod":"","engine":"command","role":"keeper"}','starting:0d5c714001ab45f8aa625eefafdca796');
INSERT INTO "events" VALUES(5,1.7949032373541965484e+09,'agent.state','amy','{"run":"0d5c714001ab45f8aa625eefafdca796","state":{"state":"starting"},"since":1794903237.306398,"decided_by":"hub","evidence":[{"source":"hub","says":"asked to start","at":1794903237.306398}],"filed":null,"filed_at":0.0,"told":null,"told_at":0.0,"hint":null,"hint_at":0.0}',NULL);
INSERT INTO "events" VALUES(6,1.79490323743839693066e+09,'agent.started','amy','{"run":"0d5c714001ab45f8aa625eefafdca796","pod":"","holder":32382,"child":32385,"cwd":"/"}','started:0d5c714001ab45f8aa625eefafdca796');
INSERT INTO "events" VALUES(7,1.79490323743845534322e+09,'agent.state','amy','{"run":"0d5c714001ab45f8aa625eefafdca796","state":{"state":"unknown","missing":"it reports no state"},"since":1794903237.4382513,"decided_by":"process","evidence":[{"source":"hub","says":"asked to start","at":1794903237.306398},{"source":"process","says":"alive, pid 32385 in holder 32382","at":1794903237.4382513}],"filed":null,"filed_at":0.0,"told":null,"told_at":0.0,"hint":null,"hint_at":0.0}',NULL);
INSERT INTO "events" VALUES(8,1.794903238500058651e+09,'agent.starting','bob','{"run":"aba8ef0d26114402b72942a2951537c1","pod":"","engine":"command","role":"brief"}','starting:aba8ef0d26114402b72942a2951537c1');
INSERT INTO "events" VALUES(9,1.79490323850012278555e+09,'agent.state','bob','{"run":"aba8ef0d26114402b72942a2951537c1","state":{"state":"starting"},"since":1794903238.4479153,"decided_by":"hub","evidence":[{"source":"hub","says":"asked to start","at":1794903238.4479153}],"filed":null,"filed_at":0.0,"told":null,"told_at":0.0,"hint":null,"hint_at":0.0}',NULL);
INSERT INTO "events" VALUES(10,1.79490323860559201248e+09,'agent.started','bob','{"run":"aba8ef0d26114402b72942a2951537c1","pod":"","holder":32477,"child":32480,"cwd":"/"}','started:aba8ef0d26114402b72942a2951537c1');
INSERT INTO "events" VALUES(11,1.79490323860563445092e+09,'agent.state','bob','{"run":"aba8ef0d26114402b72942a2951537c1","state":{"state":"unknown","missing":"it reports no state"},"since":1794903238.6054795,"decided_by":"process","evidence":[{"source":"hub","says":"asked to start","at":1794903238.4479153},{"source":"process","says":"alive, pid 32480 in holder 32477","at":1794903238.6054795}],"filed":null,"filed_at":0.0,"told":null,"told_at":0.0,"hint":null,"hint_at":0.0}',NULL);
INSERT INTO "events" VALUES(12,1.79490323862695837025e+09,'agent.stopped','bob','{"run":"aba8ef0d26114402b72942a2951537c1","pod":"","code":3,"signal":null}','stopped:aba8ef0d26114402b72942a2951537c1');
INSERT INTO "events" VALUES(13,1.79490323862700700756e+09,'agent.state','bob','{"run":"aba8ef0d26114402b72942a2951537c1","state":{"state":"exited","code":3,"signal":null},"since":1794903238.6045587,"decided_by":"process","evidence":[{"source":"hub","says":"asked to start","at":1794903238.4479153},{"source":"process","says":"ended with 3","at":1794903238.6045587}],"filed":null,"filed_at":0.0,"told":null,"told_at":0.0,"hint":null,"hint_at":0.0}',NULL);
INSERT INTO "events" VALUES(14,1.79490325481649827957e+09,'agent.starting','dora','{"run":"f86ba458a5e74ecab2147e3a77cad547","pod":"","engine":"command","role":"worker"}','starting:f86ba458a5e74ecab2147e3a77cad547');
INSERT INTO "events" VALUES(15,1.79490325481655788424e+09,'agent.state','dora','{"run":"f86ba458a5e74ecab2147e3a77cad547","state":{"state":"starting"},"since":1794903254.8059835,"decided_by":"hub","evidence":[{"source":"hub","says":"asked to start","at":1794903254.8059835}],"filed":null,"filed_at":0.0,"told":null,"told_at":0.0,"hint":null,"hint_at":0.0}',NULL);
INSERT INTO "events" VALUES(16,1.79490325486024475095e+09,'agent.started','dora','{"run":"f86ba458a5e74ecab2147e3a77cad547","pod":"","cwd":"@HOME@/sessions/dora/work"}','started:f86ba458a5e74ecab2147e3a77cad547');
INSERT INTO "events" VALUES(17,1.79490325486029744144e+09,'agent.state','dora','{"run":"f86ba458a5e74ecab2147e3a77cad547","state":{"state":"idle","limited_until":null},"since":1794903254.859885,"decided_by":"hub","evidence":[{"source":"hub","says":"waits for tasks","at":1794903254.859885}],"filed":null,"filed_at":0.0,"told":{"state":"idle","limited_until":null},"told_at":1794903254.859885,"hint":null,"hint_at":0.0}',NULL);
INSERT INTO "events" VALUES(18,1.79490325788842964172e+09,'task.state','dora','{"task":"t-45c76a59917c","state":"queued","session":"18b4818d-6024-4de8-b48a-7dc0a96618d8","status":{"state":"queued"},"prompt":"count the commas","env":[]}',NULL);
INSERT INTO "events" VALUES(19,1.79490325789445662497e+09,'task.state','dora','{"task":"t-45c76a59917c","state":"working","session":"18b4818d-6024-4de8-b48a-7dc0a96618d8","status":{"state":"working","run":1,"turn_started":1794903257.8943908,"attempt":1,"due":0.0},"prompt":"count the commas","env":[]}',NULL);
INSERT INTO "events" VALUES(20,1.79490325795206046109e+09,'agent.state','dora','{"run":"f86ba458a5e74ecab2147e3a77cad547","state":{"state":"working","tool":"","doing":"","until":null},"since":1794903257.951756,"decided_by":"task","evidence":[{"source":"hub","says":"waits for tasks","at":1794903254.859885},{"source":"task","says":"t-45c76a59917c is working","at":1794903257.951756}],"filed":null,"filed_at":0.0,"told":{"state":"working","tool":"","doing":"","until":null},"told_at":1794903257.951756,"hint":null,"hint_at":0.0}',NULL);
INSERT INTO "events" VALUES(21,1.79490325802186012271e+09,'task.state','dora','{"task":"t-45c76a59917c","state":"completed","session":"18b4818d-6024-4de8-b48a-7dc0a96618d8","status":{"state":"completed"},"prompt":"count the commas","env":[]}',NULL);
INSERT INTO "events" VALUES(22,1.79490325803729391094e+09,'agent.state','dora','{"run":"f86ba458a5e74ecab2147e3a77cad547","state":{"state":"idle","limited_until":null},"since":1794903258.0371885,"decided_by":"task","evidence":[{"source":"hub","says":"waits for tasks","at":1794903254.859885},{"source":"task","says":"t-45c76a59917c is completed","at":1794903258.0371885}],"filed":null,"filed_at":0.0,"told":{"state":"idle","limited_until":null},"told_at":1794903258.0371885,"hint":null,"hint_at":0.0}',NULL);
INSERT INTO "events" VALUES(23,1.79490325940255141261e+09,'message.sent','bob','{"id":"m-9c963a0282c5","from":"root","priority":"normal","bytes":14}','message.sent:m-9c963a0282c5');
INSERT INTO "events" VALUES(24,1.79490325992525577548e+09,'message.sent','amy','{"id":"m-c5d20678f057","from":"root","priority":"normal","bytes":14}','message.sent:m-c5d20678f057');
CREATE TABLE latest (
        kind TEXT NOT NULL,
        agent TEXT NOT NULL,
        first INTEGER NOT NULL,
        last INTEGER NOT NULL,
        PRIMARY KEY (kind, agent)
    ) WITHOUT ROWID
    ;
INSERT INTO "latest" VALUES('agent.started','amy',6,6);
INSERT INTO "latest" VALUES('agent.started','bob',10,10);
INSERT INTO "latest" VALUES('agent.started','dora',16,16);
INSERT INTO "latest" VALUES('agent.starting','amy',4,4);
INSERT INTO "latest" VALUES('agent.starting','bob',8,8);
INSERT INTO "latest" VALUES('agent.starting','dora',14,14);
INSERT INTO "latest" VALUES('agent.state','amy',5,7);
INSERT INTO "latest" VALUES('agent.state','bob',9,13);
INSERT INTO "latest" VALUES('agent.state','dora',15,22);
INSERT INTO "latest" VALUES('agent.stopped','bob',12,12);
INSERT INTO "latest" VALUES('hub.started','',1,1);
INSERT INTO "latest" VALUES('message.sent','amy',24,24);
INSERT INTO "latest" VALUES('message.sent','bob',23,23);
INSERT INTO "latest" VALUES('task.state','dora',18,21);
INSERT INTO "latest" VALUES('upkeep.events','',3,3);
INSERT INTO "latest" VALUES('upkeep.worktrees','',2,2);
CREATE TABLE messages (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        sender TEXT NOT NULL,
        recipient TEXT NOT NULL,
        text TEXT NOT NULL,
        priority TEXT NOT NULL,
        created REAL NOT NULL,
        sent REAL,
        channel TEXT NOT NULL,
        delivered REAL,
        read REAL
    );
INSERT INTO "messages" VALUES(1,'m-9c963a0282c5','root','bob','are you there?','normal',1.79490325940157175064e+09,NULL,'',NULL,NULL);
INSERT INTO "messages" VALUES(2,'m-c5d20678f057','root','amy','a line for you','normal',1.79490325992287445061e+09,1.79490325994481158254e+09,'lines',NULL,NULL);
CREATE TABLE task_sessions (
        id TEXT PRIMARY KEY,
        agent TEXT NOT NULL,
        data TEXT NOT NULL
    ) WITHOUT ROWID
    ;
INSERT INTO "task_sessions" VALUES('18b4818d-6024-4de8-b48a-7dc0a96618d8','dora','{"id":"18b4818d-6024-4de8-b48a-7dc0a96618d8","agent":"dora","directory":"@HOME@/sessions/dora/work/18b4818d-6024-4de8-b48a-7dc0a96618d8","repo":"","worktree":"","git_dir":"","common_dir":"","conversation":"","usd":0.0}');
CREATE TABLE tasks (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        agent TEXT NOT NULL,
        session TEXT NOT NULL,
        request TEXT UNIQUE,
        state TEXT NOT NULL,
        created REAL NOT NULL,
        text TEXT NOT NULL,
        data TEXT NOT NULL
    );
INSERT INTO "tasks" VALUES(1,'t-45c76a59917c','dora','18b4818d-6024-4de8-b48a-7dc0a96618d8','eeac8f742032401989292f81b51fb9b2','completed',1.79490325788842964172e+09,'count the commas
worked
count the commas','{"id": "t-45c76a59917c", "agent": "dora", "session_id": "18b4818d-6024-4de8-b48a-7dc0a96618d8", "request": "eeac8f742032401989292f81b51fb9b2", "wish": {"prompt": "count the commas", "model": null, "timeout_seconds": null, "session_id": null, "keep_open": null, "project": null, "workdir": null, "repo": null, "worktree": null, "budget": null}, "env_names": [], "role": "", "labels": {}, "priority": 0, "created": 1794903257.8884296, "started": 1794903257.8943908, "ended": 1794903257.987954, "status": {"state": "completed"}, "directory": "@HOME@/sessions/dora/work/18b4818d-6024-4de8-b48a-7dc0a96618d8", "turns": [], "requests": [], "runs": [{"number": 1, "began": 1794903257.8943908, "ended": 1794903257.987954, "exit_code": 0, "signal": null, "fault": "", "why": "", "is_retryable": false, "input_tokens": 0, "output_tokens": 0, "usd": 0.0}], "output": "worked\ncount the commas", "base": "", "before": "", "commits": [], "warnings": []}');
CREATE TABLE usage (
        agent TEXT NOT NULL,
        born TEXT NOT NULL,
        role TEXT NOT NULL,
        pod TEXT NOT NULL,
        model TEXT NOT NULL,
        day TEXT NOT NULL,
        input INTEGER NOT NULL,
        output INTEGER NOT NULL,
        cache_read INTEGER NOT NULL,
        cache_write INTEGER NOT NULL,
        usd REAL NOT NULL,
        requests INTEGER NOT NULL,
        tool_calls INTEGER NOT NULL,
        tool_seconds REAL NOT NULL,
        work_seconds REAL NOT NULL,
        PRIMARY KEY (agent, born, role, pod, model, day)
    ) WITHOUT ROWID
    ;
INSERT INTO "usage" VALUES('dora','2026-11-17T08:14:14.805757Z','worker','','','2026-11-17',0,0,0,0,0.0,0,0,0.0,8.52334499359130859375e-02);
CREATE TABLE usage_clocks (
        agent TEXT PRIMARY KEY,
        at REAL NOT NULL,
        is_working INTEGER NOT NULL
    ) WITHOUT ROWID
    ;
INSERT INTO "usage_clocks" VALUES('amy',1.79490323743845534322e+09,0);
INSERT INTO "usage_clocks" VALUES('bob',1.79490323862700700756e+09,0);
INSERT INTO "usage_clocks" VALUES('dora',1.79490325803729391094e+09,0);
CREATE TABLE usage_mark (id INTEGER PRIMARY KEY, event INTEGER NOT NULL);
INSERT INTO "usage_mark" VALUES(1,22);
CREATE TABLE usage_seen (
        agent TEXT NOT NULL,
        key BLOB NOT NULL,
        at REAL NOT NULL,
        PRIMARY KEY (agent, key)
    ) WITHOUT ROWID
    ;
CREATE TABLE usage_series (
        agent TEXT NOT NULL,
        series BLOB NOT NULL,
        value REAL NOT NULL,
        PRIMARY KEY (agent, series)
    ) WITHOUT ROWID
    ;
CREATE UNIQUE INDEX events_key ON events (key) WHERE key IS NOT NULL;
CREATE INDEX usage_seen_at ON usage_seen (at);
CREATE INDEX messages_recipient ON messages (recipient, number);
CREATE INDEX messages_open ON messages (recipient) WHERE read IS NULL;
CREATE INDEX tasks_agent ON tasks (agent, number);
CREATE INDEX tasks_open ON tasks (number) WHERE state IN ('queued', 'working', 'idle', 'cancelling');
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('events',24);
INSERT INTO "sqlite_sequence" VALUES('tasks',3);
INSERT INTO "sqlite_sequence" VALUES('messages',2);
COMMIT;
