;; It loops for ever in the destructor of a resource of its own.
;; world: export mine: interface { resource thing { constructor(); } }
;; world: export dsh:agent/request@0.1.0;
;; limit: cpu-ms 5
;; fails: agent/request limit: it computed for longer than the limit `cpu-ms` of 5 ms
(import "[export]mine" "[resource-new]thing" (func $new (param i32) (result i32)))
(import "[export]mine" "[resource-drop]thing" (func $drop (param i32)))
(func (export "mine#[constructor]thing") (result i32) (call $new (i32.const 7)))
(func (export "mine#[dtor]thing") (param i32) (loop (br 0)))
(func (export "dsh:agent/request@0.1.0#handle") (param $turn i32) (param $step i32) (param $request i32) (param $next i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (call $drop (call $new (i32.const 7)))))
  (call $request-next.run (local.get $next) (i32.const 2048))
  (call $ok))
