;; It sets a value with one key twice and a number that no double can hold.
;; world: import dsh:plugin/state@0.1.0;
;; world: export dsh:agent/request@0.1.0;
;; fails: agent/request error: the value of `k` is not valid JSON: number out of range at line 1 column 19 (`invalid-argument`)
(data (i32.const 0) "k{\"a\":1,\"a\":1e999999}  ")
(func (export "dsh:agent/request@0.1.0#handle") (param $turn i32) (param $step i32) (param $request i32) (param $next i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (call $state.set (i32.const 0) (i32.const 1) (i32.const 1) (i32.const 23) (i32.const 2048)) (if (i32.load8_u (i32.const 2048)) (then (return (i32.const 2048))))))
  (call $request-next.run (local.get $next) (i32.const 2048))
  (call $ok))
