;; It puts a message of the role `system` into the history.
;; world: export dsh:agent/request@0.1.0;
;; fails: agent/request error: a message of role `system` cannot stand in a history; use `set-system` (`invalid-argument`)
(func (export "dsh:agent/request@0.1.0#handle") (param $turn i32) (param $step i32) (param $request i32) (param $next i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (i32.store8 (i32.const 0) (i32.const 0)) (call $llm-request.splice (local.get $request) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 2048)) (return (i32.const 2048))))
  (call $request-next.run (local.get $next) (i32.const 2048))
  (call $ok))
