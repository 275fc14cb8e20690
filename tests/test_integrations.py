"""The Lightning callback and the Hugging Face functions, with the real libraries."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from calibrant import Predictions, metrics
from calibrant.losses import Objective, focal
from tests.close import assert_close

pytestmark = pytest.mark.filterwarnings("ignore")  # of the other libraries


def points() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(96, 4, generator=generator)
    return x, x[:, :3].argmax(1)


def test_lightning_callback(tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning")
    from calibrant.lightning import CalibrationCallback

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.objective = nn.Linear(4, 3), Objective("focal", "mmce", weight=0.1)

        def training_step(self, batch, _):
            return self.objective(self.net(batch[0]), batch[1])

        def validation_step(self, batch, _):
            return {"logits": self.net(batch[0]), "labels": batch[1]}

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.5)

    x, y = points()
    data = DataLoader(TensorDataset(x, y), batch_size=20)
    callback = CalibrationCallback(["accuracy", "ece", "nll"])
    module = Module()
    trainer = lightning.Trainer(
        max_epochs=2,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[callback],
        default_root_dir=tmp_path,
    )
    trainer.fit(module, data, data)
    with torch.no_grad():
        p = Predictions(logits=module.net(x), labels=y)
    for name in ("accuracy", "ece", "nll"):
        want = getattr(metrics, name)(p)
        assert float(trainer.callback_metrics[f"val_{name}"]) == pytest.approx(want, rel=1e-5)

    class Silent(Module):
        def validation_step(self, batch, _):
            return None

    with pytest.raises(TypeError, match="must return a mapping with 'logits' and 'labels'"):
        trainer.validate(Silent(), data, verbose=False)


def test_hugging_face_trainer(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    from calibrant.huggingface import compute_metrics, loss_for

    config = transformers.BertConfig(
        vocab_size=30,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        num_labels=3,
        max_position_embeddings=16,
    )
    torch.manual_seed(0)
    model = transformers.BertForSequenceClassification(config)
    generator = torch.Generator().manual_seed(0)
    words = torch.randint(1, 30, (64, 8), generator=generator)
    rows = [{"input_ids": w, "labels": int(w[0]) % 3} for w in words]
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path),
        num_train_epochs=1,
        per_device_train_batch_size=16,
        report_to=[],
        use_cpu=True,
        save_strategy="no",
        disable_tqdm=True,
        seed=0,
    )
    trainer = transformers.Trainer(
        model=model,
        args=arguments,
        train_dataset=rows,
        eval_dataset=rows,
        compute_loss_func=loss_for("focal:gamma=3"),
        compute_metrics=compute_metrics,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer.train()
        found = trainer.evaluate()
        out = trainer.predict(rows)
    p = Predictions(logits=out.predictions, labels=out.label_ids)
    assert found["eval_ece"] == pytest.approx(metrics.ece(p))
    assert found["eval_nll"] == pytest.approx(metrics.nll(p))
    loss = focal(torch.tensor(p.logits), torch.tensor(p.labels), gamma=3).mean()
    assert found["eval_loss"] == pytest.approx(float(loss), rel=1e-4)


@pytest.mark.parametrize(("batch", "steps"), [(8, 1), (2, 4)])
def test_hugging_face_steps_do_not_depend_on_how_they_are_accumulated(
    batch: int, steps: int, tmp_path: Path
) -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    from calibrant.huggingface import loss_for

    class Linear(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = torch.nn.Linear(4, 3)

        def forward(self, x, labels=None):
            return {"logits": self.head(x)}

    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(8, 4, generator=generator), torch.arange(8) % 3
    torch.manual_seed(0)
    model = Linear()
    weight = model.head.weight.detach().clone().requires_grad_()
    focal(x @ weight.T + model.head.bias.detach(), y, gamma=3).mean().backward()
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path),
        num_train_epochs=1,
        per_device_train_batch_size=batch,
        gradient_accumulation_steps=steps,
        learning_rate=1.0,
        optim="sgd",
        max_grad_norm=0.0,
        lr_scheduler_type="constant",
        report_to=[],
        use_cpu=True,
        save_strategy="no",
        disable_tqdm=True,
    )
    rows = [{"x": a, "labels": int(b)} for a, b in zip(x, y, strict=True)]
    trainer = transformers.Trainer(
        model=model, args=arguments, train_dataset=rows, compute_loss_func=loss_for("focal:gamma=3")
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer.train()
    assert_close(model.head.weight.detach(), (weight - weight.grad).detach())


def test_hugging_face_forms() -> None:
    from calibrant.huggingface import loss_for, metrics_for

    z, y = torch.randn(8, 3), torch.randint(3, (8,))

    class Output:
        logits = z

    want = focal(z, y).mean()
    for objective in ("focal", {"primary": "focal"}, Objective("focal")):
        assert_close(loss_for(objective)(Output(), y, 8), want)
        assert_close(loss_for(objective)({"logits": z}, y), want)
        assert_close(loss_for(objective)({"logits": z}, y, 32), want / 4)
    both = metrics_for(["nll"])(((z.numpy(), None), y.numpy()))
    assert both == metrics_for(["nll"])((z.numpy(), y.numpy()))
