//! The launches of a mixture of experts: who computes what, their products, and what becomes of the results.

use ropeway_model::spec::ExpertsSpec;

use super::{Program, Run};
use crate::blas::Operands;
use crate::driver::Address;
use crate::error::CudaError;
use crate::kernels::{Combine, ExpertKernels, ExpertTiles, Lists, PickExperts, Router};
use crate::plan::{MatrixId, Slot, VectorId};
use crate::products;

impl Run<'_> {
    /// Queues the choice of every row's experts, and what each of them has to compute.
    pub(super) fn choose_experts(
        &self,
        router: VectorId,
        norm: VectorId,
        experts: ExpertsSpec,
    ) -> Result<(), CudaError> {
        self.route_to_experts(router, norm, experts)?;
        if self.rows() == 1 {
            let lists = [self.program.workspace.expert_lists, self.program.workspace.expert_work];
            return self.pick_experts(experts, lists);
        }
        self.pick_experts(experts, [Address::NULL; 2])?;
        self.list_experts(experts)
    }

    fn route_to_experts(
        &self,
        router: VectorId,
        norm: VectorId,
        experts: ExpertsSpec,
    ) -> Result<(), CudaError> {
        let Program { stream, kernels, model, weights, workspace, constants, .. } = self.program;
        let arguments = Router {
            hidden: self.hidden,
            norm: weights.vector(Some(norm)),
            w: weights.vector(Some(router)),
            logits: workspace.expert_logits,
            counts: workspace.expert_counts,
            width: model.hidden as u32,
            rows: self.rows() as u32,
            experts: experts.experts as u32,
            eps: constants.eps,
        };
        let kernel = kernels.experts.router(self.rows());
        Ok(stream.launch(&kernel.function, kernel.shape(self.rows(), experts.experts), &arguments)?)
    }

    /// Lists and work are written for a single row alone, where every pair has an expert to itself.
    fn pick_experts(&self, experts: ExpertsSpec, [lists, work]: [Address; 2]) -> Result<(), CudaError> {
        let Program { stream, kernels, workspace, .. } = self.program;
        let arguments = PickExperts {
            logits: workspace.expert_logits,
            experts_of: workspace.experts_of,
            weights: workspace.expert_weights,
            counts: workspace.expert_counts,
            lists,
            work,
            rows: self.rows() as u32,
            experts: experts.experts as u32,
            top_k: experts.top_k as u32,
            normalise: u32::from(experts.normalise),
        };
        let shape = ExpertKernels::pick_shape(self.rows(), experts.experts);
        Ok(stream.launch(&kernels.experts.pick, shape, &arguments)?)
    }

    fn list_experts(&self, experts: ExpertsSpec) -> Result<(), CudaError> {
        let Program { stream, kernels, workspace, .. } = self.program;
        let pairs = self.rows() * experts.top_k;
        let tiles = ExpertTiles::new(pairs, experts.experts, kernels.products.expert_rows());
        let arguments = Lists {
            experts_of: workspace.experts_of,
            counts: workspace.expert_counts,
            lists: workspace.expert_lists,
            work: workspace.expert_work,
            pairs: pairs as u32,
            experts: experts.experts as u32,
            tile: tiles.rows as u32,
            items: tiles.most as u32,
        };
        let shape = ExpertKernels::lists_shape(pairs, experts.experts);
        Ok(stream.launch(&kernels.experts.lists, shape, &arguments)?)
    }

    /// Queues a product of every pair of a row and one of its experts.
    pub(super) fn expert_linear(
        &self,
        matrix: MatrixId,
        from: Slot,
        to: Slot,
        top_k: usize,
    ) -> Result<(), CudaError> {
        let Program { stream, kernels, weights, workspace, products, plan, .. } = self.program;
        let operands = Operands { w: weights.matrix(matrix), x: workspace.slot(from), y: workspace.slot(to) };
        let (matrix, pairs) = (plan.matrix(matrix), self.rows() * top_k);
        let lists = products::Lists {
            lists: workspace.expert_lists,
            work: workspace.expert_work,
            tiles: ExpertTiles::new(pairs, matrix.copies, kernels.products.expert_rows()),
            // Only the first product reads tokens; the second reads what the first gave for each pair.
            share: if from == Slot::Normed { top_k } else { 1 },
        };
        products.run_experts(stream, &kernels.products, matrix, pairs, operands, lists)
    }

    /// Queues the sum of every row's results, weighted.
    pub(super) fn combine(&self, experts: ExpertsSpec) -> Result<(), CudaError> {
        let Program { stream, kernels, model, workspace, .. } = self.program;
        let arguments = Combine {
            results: workspace.expert_results,
            weights: workspace.expert_weights,
            branch: workspace.branch,
            width: model.hidden as u32,
            top_k: experts.top_k as u32,
        };
        let shape = ExpertKernels::combine_shape(self.rows(), model.hidden);
        Ok(stream.launch(&kernels.experts.combine, shape, &arguments)?)
    }
}
