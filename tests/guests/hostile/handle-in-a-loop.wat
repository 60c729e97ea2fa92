;; It uses each number from 1 to 10,000 as a handle, from the last one down.
;; world: export dsh:agent/request@0.1.0;
;; fails: agent/request trap: it broke off: unknown handle index 10000
(func (export "dsh:agent/request@0.1.0#handle") (param $turn i32) (param $step i32) (param $request i32) (param $next i32) (result i32) (local $n i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (local.set $n (i32.const 10000)) (loop (call $llm-request.drop (local.get $n)) (local.set $n (i32.sub (local.get $n) (i32.const 1))) (br_if 0 (local.get $n)))))
  (call $request-next.run (local.get $next) (i32.const 2048))
  (call $ok))
