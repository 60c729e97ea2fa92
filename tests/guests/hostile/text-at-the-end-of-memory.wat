;; The message of its failure begins in its memory and ends behind it.
;; world: export dsh:agent/request@0.1.0;
;; fails: agent/request trap: it broke off: string pointer/length out of bounds of memory
(func (export "dsh:agent/request@0.1.0#handle") (param $turn i32) (param $step i32) (param $request i32) (param $next i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (i32.store8 (i32.const 1024) (i32.const 1)) (i32.store (i32.const 1028) (i32.const 0)) (i32.store (i32.const 1032) (i32.const 0)) (i32.store (i32.const 1036) (i32.const 131056)) (i32.store (i32.const 1040) (i32.const 32)) (return (i32.const 1024))))
  (call $request-next.run (local.get $next) (i32.const 2048))
  (call $ok))
