;; Its `_initialize` appends to the session and sends a message, before there is a call.
;; world: import dsh:session/log@0.1.0;
;; world: import dsh:agent/inbox@0.1.0;
;; world: export dsh:agent/request@0.1.0;
;; grant: session
;; grant: inbox
(data (i32.const 0) "note") (data (i32.const 8) "{}")
(func (export "_initialize")
  (call $log.append (i32.const 0) (i32.const 4) (i32.const 8) (i32.const 2) (i32.const 2048))
  (call $inbox.send (i32.const 0) (i32.const 0) (i32.const 2048)))
(func (export "dsh:agent/request@0.1.0#handle") (param $turn i32) (param $step i32) (param $request i32) (param $next i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then ))
  (call $request-next.run (local.get $next) (i32.const 2048))
  (call $ok))
