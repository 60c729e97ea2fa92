;; It calls a model for ever.
;; world: import dsh:llm/model@0.1.0;
;; world: export dsh:agent/request@0.1.0;
;; grant: llm
;; limit: host-calls 20000
;; limit: cpu-ms 20000
;; fails: agent/request error: no model in this test (`not-available`)
(func (export "dsh:agent/request@0.1.0#handle") (param $turn i32) (param $step i32) (param $request i32) (param $next i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (loop (call $model.generate (i32.const 256) (i32.const 2048)) (br_if 0 (i32.eqz (i32.load8_u (i32.const 2048))))) (memory.copy (i32.const 1028) (i32.const 2052) (i32.const 16)) (i32.store8 (i32.const 1024) (i32.const 1)) (return (i32.const 1024))))
  (call $request-next.run (local.get $next) (i32.const 2048))
  (call $ok))
