;; It keeps the handle on the rest of one waterfall and uses it in another, after the call that got it.
;; world: export dsh:agent/request@0.1.0;
;; world: export dsh:agent/turn-continuation@0.1.0;
;; fails: agent/turn-continuation trap: a handle of an earlier call was used: a handle is good until the call that got it returns
(global $kept (mut i32) (i32.const 0))
(func (export "dsh:agent/request@0.1.0#handle") (param $turn i32) (param $step i32) (param $request i32) (param $next i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (global.set $kept (local.get $next)) (return (call $ok))))
  (call $request-next.run (local.get $next) (i32.const 2048))
  (call $ok))
(func (export "dsh:agent/turn-continuation@0.1.0#handle") (param $args i32) (result i32)
  (if (i32.eq (i32.load (local.get $args)) (i32.const 1)) (then (call $request-next.run (global.get $kept) (i32.const 2048))))
  (call $ok))
