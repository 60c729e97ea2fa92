;; It ends the process, as a program would, in the middle of `agent/request`.
;; world: import wasi:cli/exit@0.2.0;
;; world: export dsh:agent/request@0.1.0;
;; fails: agent/request trap: it exited with code 0 in the middle of a call
(func (export "dsh:agent/request@0.1.0#handle") (param $turn i32) (param $step i32) (param $request i32) (param $next i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (call $exit.exit (i32.const 0))))
  (call $request-next.run (local.get $next) (i32.const 2048))
  (call $ok))
