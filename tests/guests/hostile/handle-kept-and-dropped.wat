;; It keeps a handle and only drops it in a later call, which is no fault.
;; world: export dsh:agent/request@0.1.0;
;; world: export dsh:agent/turn-continuation@0.1.0;
(global $kept (mut i32) (i32.const 0))
(func (export "dsh:agent/request@0.1.0#handle") (param $turn i32) (param $step i32) (param $request i32) (param $next i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (global.set $kept (local.get $request))))
  (call $request-next.run (local.get $next) (i32.const 2048))
  (call $ok))
(func (export "dsh:agent/turn-continuation@0.1.0#handle") (param $args i32) (result i32)
  (if (i32.eq (i32.load (local.get $args)) (i32.const 1)) (then (call $llm-request.drop (global.get $kept))))
  (call $ok))
