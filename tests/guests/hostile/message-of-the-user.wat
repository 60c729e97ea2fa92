;; It answers a message of the user in the place of the model's.
;; world: export dsh:agent/step-result@0.1.0;
;; fails: agent/step-result error: it returned an ill-formed value: `message.role` is not `assistant`
(func (export "dsh:agent/step-result@0.1.0#handle") (param $turn i32) (param $step i32) (param $role i32) (param $blocks i32) (param $count i32) (param $next i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (drop (call $said (i32.const 0) (i32.const 0))) (i32.store8 (i32.const 1028) (i32.const 1)) (return (i32.const 1024))))
  (call $said (local.get $blocks) (local.get $count)))
