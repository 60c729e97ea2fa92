;; It never runs the rest: the request, the tool and whoever comes after it are left out, and that is its right.
;; world: export dsh:agent/request@0.1.0;
;; world: export dsh:tools/execute@0.1.0;
;; world: export dsh:tools/provider@0.1.0;
(func (export "dsh:agent/request@0.1.0#handle") (param $turn i32) (param $step i32) (param $request i32) (param $next i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (return (call $ok))))
  (call $request-next.run (local.get $next) (i32.const 2048))
  (call $ok))
(func (export "dsh:tools/execute@0.1.0#handle") (param $args i32) (result i32)
  (if (i32.eq (i32.load (local.get $args)) (i32.const 1)) (then (drop (call $ok)) (i32.store8 (i32.const 1028) (i32.const 1)) (return (i32.const 1024))))
  (call $passed (call $rest (local.get $args))))
(func (export "dsh:tools/provider@0.1.0#call-tool") (param $turn i32) (param $step i32) (param i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then unreachable))
  (call $ok))
